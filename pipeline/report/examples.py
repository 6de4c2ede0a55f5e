"""Reads the examples of a run: class counts, pixel statistics and sample pictures."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

import numpy as np
import tensorflow as tf

from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.pipeline.report.artifacts import EXAMPLE_GEN, Output, Outputs, need_examples, read_task
from tfx_estimator.pipeline.report.page import LeftOutError

# Limits for each split: examples whose labels are counted, and evenly spread ones of these whose pixels are.
MOST_LABELS = 200_000
MOST_IMAGES = 10_000
# Pictures of each class, and the number of classes with pictures.
PICTURES, PICTURED_CLASSES = 8, 20
_BATCH = 500
# Longest side of a picture, and up to which one it is shown pixel by pixel, in pixels.
_LONGEST, _SMALL = 128, 64

# What a page shows of an example: a picture as a data URI, or the cells of a row by column.
Shown = Union[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class DataSet:
    """The examples of a run."""

    title: str
    shape: tuple[int, ...]  # (height, width, channels) of an image; empty for rows of a table
    names: list[str]  # the classes, in the order of their labels
    files: dict[str, list[str]]  # TFRecord files by split
    counts: dict[str, int]  # number of examples by split, as TfdsExampleGen counted them

    @property
    def is_binary(self) -> bool:
        """True for two classes of which the second is predicted."""
        return False

    @property
    def is_regression(self) -> bool:
        """True if a number is predicted; there are no classes then, and labels are float64."""
        return False

    def name_of(self, label: float) -> str:
        """Returns a class, or a number, as a page shows it."""
        return f"{label:.6g}" if self.is_regression else self.names[int(label)]

    def batches(self, split: str, most: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields (serialized examples, contents, labels) of at most `most` examples; objects, objects, int64 [batch].

        The contents, raw images, tell examples apart.
        """
        spec = {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}

        def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            features = tf.io.parse_example(serialized, spec)
            return serialized, features[IMAGE], features[LABEL]

        records = tf.data.TFRecordDataset(sorted(self.files[split])).take(most).batch(_BATCH).map(parse).prefetch(2)
        yield from records.as_numpy_iterator()

    def show(self, content: bytes) -> Shown:
        """Returns what a page shows of an example: see `to_data_uri`."""
        return to_data_uri(to_image(self, content))


@dataclass
class Pixels:
    """Statistics of pixel values, 0 to 255."""

    images: int
    histogram: np.ndarray  # number of values in each of 32 equal bins
    total: np.ndarray  # sum by channel, float64
    squares: np.ndarray  # sum of squares by channel, float64
    low: int = 255
    high: int = 0

    @property
    def mean(self) -> list[float]:
        """By channel."""
        return list(self.total / self._values)

    @property
    def deviation(self) -> list[float]:
        """Standard deviation by channel."""
        variance = self.squares / self._values - (self.total / self._values) ** 2
        return list(np.sqrt(np.maximum(variance, 0)))

    @property
    def _values(self) -> float:
        return max(self.histogram.sum() / len(self.total), 1)


@dataclass
class Statistics:
    """Statistics of one split."""

    examples: int  # number of examples whose labels were counted
    classes: np.ndarray  # number of examples by class; int64 [classes]
    pixels: Pixels  # of a sample of its images
    pictures: dict[int, list[np.ndarray]] = field(default_factory=dict)  # by class: uint8 [height, width, channels]


def open_data(outputs: Outputs) -> DataSet:
    """Finds the examples of a run; raises LeftOutError if some were deleted, or are not of classes."""
    examples = need_examples(outputs)
    model = outputs.get(("Trainer", "model"))
    if model and (task := read_task(model)):
        # Imported late: it imports TensorFlow Transform.
        from tfx_estimator.pipeline.report.rows import open_rows

        return open_rows(outputs, examples, task)
    if (EXAMPLE_GEN, "examples") not in outputs:
        raise LeftOutError("The examples are rows of a table, and this run has no model that was trained on them.")
    shape, names = examples.read_json("image_shape"), examples.read_json("label_names")
    if not shape or not names:
        raise LeftOutError("The examples are not images with one class each.")
    files = files_of(examples)
    counts = {split: int(examples.properties.get(f"num_examples_{split}", 0)) for split in files}
    if gone := [split for split in files if counts[split] and not files[split]]:
        raise LeftOutError(f"The examples of the split {', '.join(gone)} have been deleted from {examples.uri}.")
    title = f"{examples.properties.get('dataset', '')} {examples.properties.get('version', '')}".strip()
    return DataSet(title, tuple(shape), list(names), files, counts)


def files_of(examples: Output) -> dict[str, list[str]]:
    """Returns the files of each split."""
    splits = examples.read_json("split_names") or []
    return {split: tf.io.gfile.glob(os.path.join(examples.uri, f"Split-{split}", "*")) for split in splits}


def read_statistics(data: DataSet) -> dict[str, Statistics]:
    """Counts the classes of each split, and the pixels of a sample of its images."""
    if not data.shape:
        raise LeftOutError("The examples are rows of a table.")
    return {split: _read_split(data, split) for split in data.files}


def to_image(data: DataSet, raw: bytes) -> np.ndarray:
    """Returns the image, uint8 [height, width, channels], of its raw bytes."""
    if len(raw) != math.prod(data.shape):
        raise LeftOutError(f"An image has {len(raw):,} bytes, where {math.prod(data.shape):,} were expected.")
    return np.frombuffer(raw, np.uint8).reshape(data.shape)


def to_data_uri(image: np.ndarray) -> str:
    """Returns an image as a data URI: a small one as a PNG with every pixel, a larger one as a JPEG of at most 128.

    Args:
        image: uint8 [height, width, channels]; of other than 1 or 3 channels the first three, or one, are shown.
    """
    shown = image if image.shape[2] in (1, 3) else image[..., : 3 if image.shape[2] > 3 else 1]
    longest = max(shown.shape[:2])
    if longest <= _SMALL:
        return "data:image/png;base64," + base64.b64encode(tf.io.encode_png(shown).numpy()).decode("ascii")
    if longest > _LONGEST:
        size = [max(round(side * _LONGEST / longest), 1) for side in shown.shape[:2]]
        resized = tf.image.resize(shown, size, antialias=True)
        shown = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8).numpy()
    encoded = tf.io.encode_jpeg(shown, quality=85).numpy()
    return "data:image/jpeg;base64," + base64.b64encode(encoded).decode("ascii")


def _read_split(data: DataSet, split: str) -> Statistics:
    channels, every = data.shape[2], max(math.ceil(data.counts[split] / MOST_IMAGES), 1)
    pixels = Pixels(0, np.zeros(32, np.int64), np.zeros(channels), np.zeros(channels))
    found = Statistics(0, np.zeros(len(data.names), np.int64), pixels)
    for _, raw, labels in data.batches(split, MOST_LABELS):
        if labels.min() < 0 or labels.max() >= len(data.names):
            raise LeftOutError(f"The split {split} holds a label without a class.")
        found.classes += np.bincount(labels, minlength=len(data.names))
        # Counts over the whole split, so that the sample is even if examples are sorted by class.
        chosen = range(-found.examples % every, len(labels), every)
        images = np.stack([to_image(data, raw[index]) for index in chosen]) if chosen else None
        found.examples += len(labels)
        if images is not None:
            _add(pixels, images)
            _keep(found.pictures, images, labels[list(chosen)])
    return found


def _add(pixels: Pixels, images: np.ndarray) -> None:
    by_channel = images.reshape(-1, images.shape[-1])
    # Counting the 256 values once is cheaper than squaring each.
    counts = np.stack([np.bincount(by_channel[:, channel], minlength=256) for channel in range(images.shape[-1])])
    values = np.arange(256, dtype=np.float64)
    pixels.images += len(images)
    pixels.histogram += counts.sum(axis=0).reshape(32, 8).sum(axis=1)
    pixels.total += counts @ values
    pixels.squares += counts @ values**2
    pixels.low, pixels.high = min(pixels.low, int(images.min())), max(pixels.high, int(images.max()))


def _keep(pictures: dict[int, list[np.ndarray]], images: np.ndarray, labels: np.ndarray) -> None:
    for image, label in zip(images, labels):
        if label < PICTURED_CLASSES and len(kept := pictures.setdefault(int(label), [])) < PICTURES:
            kept.append(image)
