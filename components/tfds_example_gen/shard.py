"""Writes one output shard: one Beam element, one file."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Iterator

import apache_beam as beam
import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources import ExampleRange, ImageSource, open_source
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.errors import DamagedDataError, TfxEstimatorError, to_json


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file to write, and the examples that it is to hold."""

    path: str
    ranges: tuple[ExampleRange, ...]

    @property
    def size(self) -> int:
        """Number of examples."""
        return sum(len(part) for part in self.ranges)


class WriteShard(beam.DoFn):
    """Reads one shard's examples and writes its TFRecord file, under a temporary name until it is whole.

    Runs of the same shard write the same bytes, so a runner may retry one, or run one twice.

    Args:
        data: The declaration's `data` section.
        scratch: Folder for unfinished files, and for errors that a runner would only hand back as text.
    """

    def __init__(self, data: DataSection, scratch: str) -> None:
        self._data = data
        self._scratch = scratch
        self._source: ImageSource

    def setup(self) -> None:
        """Opens the data set in the worker."""
        self._source = open_source(self._data)

    def process(self, shard: Shard) -> Iterator[int]:
        """Yields the number of examples written."""
        name = os.path.join(self._scratch, uuid.uuid4().hex)
        try:
            count = self._write(shard, name)
        except TfxEstimatorError as error:
            with fileio.open(f"{name}.error", "w") as file:
                json.dump(to_json(error), file)
            raise
        fileio.rename(name, shard.path, overwrite=True)
        yield count

    def _write(self, shard: Shard, path: str) -> int:
        shape = self._source.info.image_shape
        num_classes = self._source.info.num_classes
        example, count = _Template(), 0
        with tf.io.TFRecordWriter(path) as writer:
            for part in shard.ranges:
                for image, label in self._source.read(part):
                    if image.shape != shape or image.dtype != "uint8":
                        raise DamagedDataError(
                            f"an image of {part} is {image.dtype} of shape {image.shape}", expected=f"uint8 of {shape}"
                        )
                    if not 0 <= label < num_classes:
                        raise DamagedDataError(f"a label of {part} is {label}", expected=f"0 to {num_classes - 1}")
                    writer.write(example.fill(image.tobytes(), label))
                    count += 1
        if count != shard.size:
            raise DamagedDataError(
                f"{shard.ranges} gave {count:,} examples", expected=f"{shard.size:,}", todo="prepare the data set again"
            )
        return count


class _Template:
    """One tf.Example, filled again for every record."""

    def __init__(self) -> None:
        self._example = tf.train.Example()
        self._image = self._example.features.feature[IMAGE].bytes_list.value
        self._label = self._example.features.feature[LABEL].int64_list.value
        self._image.append(b"")
        self._label.append(0)

    def fill(self, image: bytes, label: int) -> bytes:
        """Returns the serialized example; the order of its features is fixed."""
        self._image[0] = image
        self._label[0] = label
        return self._example.SerializeToString(deterministic=True)
