"""Any TFDS image-classification data set."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfx_estimator.data.resizing import resize_uint8
from tfx_estimator.data.sources.files import fingerprint_files
from tfx_estimator.data.sources.image_decoding import to_channels
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.data.sources.splits import ExampleRange
from tfx_estimator.data.sources.tfds_lookup import FoundBuilder, open_prepared
from tfx_estimator.data.sources.tfds_lookup import prepared_damage as _damaged
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.config.data import DataSection, suggest_splits
from tfx_estimator.pipeline.user_data.names import nfc
from tfx_estimator.pipeline.user_data.read import is_prepared

# Limit of the decoded pixels of a batch: large images have small batches.
_BATCH_BYTES = 16 << 20
_MAX_BATCH = 256


class TfdsSource(ImageSource):
    """Reads a TFDS data set, prepared or prepared by `prepare`.

    Records are parsed in batches and decoded by one graph per batch, which takes less than half the time of
    `builder.as_dataset` for small images; the pixels are the same.
    """

    def __init__(self, section: DataSection, found: FoundBuilder) -> None:
        super().__init__(section)
        self._found = found
        self._builder = found.builder

    @functools.cached_property
    def info(self) -> SourceInfo:
        """See ImageSource."""
        return _describe(self._builder, self.section)

    @property
    def is_prepared(self) -> bool:
        """See ImageSource."""
        return is_prepared(self._builder.data_path)

    def check_available(self) -> None:
        """See ImageSource."""
        if self.is_prepared:
            self.resolve_disjoint()
            return
        from tfx_estimator.data.sources.tfds_prepare import check_builder

        check_builder(self._builder, self.section)

    def prepare(self) -> None:
        """Downloads and prepares the data set, unless it is prepared."""
        if self.is_prepared:
            return
        from tfx_estimator.data.sources.tfds_prepare import prepare_builder, remember_source

        prepare_builder(self._builder, self.section)
        if self._found.own:
            remember_source(self._found.own, self._builder.data_path)
        # Features such as class names may only be known now, from the prepared files.
        self._builder = open_prepared(self._builder.data_path)
        self.__dict__.pop("info", None)

    def notes(self, expressions: Sequence[str] = ()) -> tuple[str, ...]:
        """See ImageSource."""
        if not self._found.own or not self.is_prepared:
            return ()
        from tfx_estimator.data.sources.tfds_prepare import notes_of_edits

        return notes_of_edits(self._found.own, self._builder.data_path)

    def shard_lengths(self) -> dict[str, tuple[int, ...]]:
        """See ImageSource."""
        if not self.is_prepared:
            raise DataNotFoundError(
                f"data set {self.info.name} {self.info.version} is not prepared in {self._builder.data_dir}",
                expected="a prepared data set",
                todo="call prepare() on the source first",
            )
        return {name: tuple(split.shard_lengths) for name, split in self._builder.info.splits.items()}

    def read(self, examples: ExampleRange) -> Iterator[tuple[np.ndarray, int]]:
        """See ImageSource."""
        split = self._builder.info.splits[f"{examples.split}[{examples.start}:{examples.stop}]"]
        for file in split.file_instructions:
            path = os.fspath(file.filename)
            yield from self._read_file(examples.split, path, file.skip, file.take, file.examples_in_shard)

    def fingerprint(self, expressions: Sequence[str]) -> str:
        """Hashes name, version, split expressions and size of images, and the prepared files of the splits in use.

        Before a data set is prepared there are no files: the fingerprint differs from the one afterwards. A builder
        class with `content_fingerprint` (the embedded digits) provides it for its content, before and after.
        """
        facts: dict[str, Any] = {
            "source": "tfds",
            "name": self.info.name,
            "version": self.info.version,
            "image_shape": self.info.image_shape,
            "splits": list(expressions),
            "label_names": list(self.info.label_names),
        }
        if self._found.cls is not None and hasattr(self._found.cls, "content_fingerprint"):
            return fingerprint_files([], {**facts, "content": self._found.cls.content_fingerprint()})
        if not self.is_prepared:
            # Only the class distinguishes data sets of one name.
            cls = type(self._builder)
            return fingerprint_files([], {**facts, "builder": f"{cls.__module__}:{cls.__name__}"})
        from etils import epath

        used = {part.split for expression in expressions for part in self.resolve(expression)}
        paths = [epath.Path(path) for split in used for path in self._builder.info.splits[split].filepaths]
        return fingerprint_files(paths, facts)

    def _read_file(self, split: str, path: str, skip: int, take: int, total: int) -> Iterator[tuple[np.ndarray, int]]:
        import tensorflow as tf
        from tensorflow_datasets.core import file_adapters

        file_format = self._builder.info.file_format
        if file_format is file_adapters.FileFormat.PARQUET:
            # TFDS reads it with pyarrow, which would run code in a file.
            import pyarrow_hotfix  # noqa: F401

        records = file_adapters.ADAPTER_FOR_FORMAT[file_format].make_tf_data(path)
        batch = max(1, min(_MAX_BATCH, _BATCH_BYTES // self.info.image_bytes))
        # At the end of a file, one more than expected, to detect additional examples.
        most = take + 1 if skip + take == total else take
        dataset = records.skip(skip).take(most).batch(batch).map(self._decode).prefetch(2)
        count, num_classes, channels = 0, self.info.num_classes, self.info.image_shape[2]
        try:
            for images, labels in dataset.as_numpy_iterator():
                for image, label in zip(to_channels(images, channels), labels.tolist()):
                    if count == take:
                        raise _damaged(path, f"it has more than its {total} examples")
                    if label == -1:  # as TFDS writes an example without a label
                        others = [name for name in self._builder.info.splits if name != split]
                        advice = suggest_splits(others, self.section.splits.test is not None) if others else ""
                        raise DataError(
                            f"the split {split!r} of {self.info.name} is unlabelled, at least in part (-1)",
                            expected="examples whose classes are known",
                            todo=f"use another split: {advice}",
                        )
                    if not 0 <= label < num_classes:
                        raise _damaged(path, f"example {skip + count} has the label {label}, of {num_classes} classes")
                    yield image, label
                    count += 1
        except tf.errors.NotFoundError:
            raise _damaged(path, "it is missing") from None
        except tf.errors.OpError as error:
            where = f"examples {skip + count} to {skip + min(count + batch, take) - 1}"
            raise _damaged(path, f"{where} cannot be read: {error.message.splitlines()[0][:200]}") from None
        if count != take:
            raise _damaged(path, f"it ends after {skip + count} examples")

    @functools.cached_property
    def _decode(self) -> Callable:
        """Traces a function from serialized examples (batch,) to images (batch, H, W, C) uint8 and labels (batch,)."""
        import tensorflow as tf

        image_key, label_key = _image_and_label(self._builder)
        features = {image_key: tf.io.FixedLenFeature([], tf.string), label_key: tf.io.FixedLenFeature([], tf.int64)}
        shape = self.info.image_shape
        stored = self._builder.info.features[image_key].shape
        resize = stored[:2] != shape[:2]

        def decode_one(encoded: tf.Tensor) -> tf.Tensor:
            # decode_image: some data sets hold JPEG bytes although their declared format is PNG.
            image = tf.io.decode_image(encoded, channels=stored[2], expand_animations=False)
            image = tf.ensure_shape(image, stored)
            if resize:
                image = resize_uint8(image, shape[:2])
            return image

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def decode(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            parsed = tf.io.parse_example(serialized, features)
            spec = tf.TensorSpec((*shape[:2], stored[2]), tf.uint8)
            return tf.map_fn(decode_one, parsed[image_key], fn_output_signature=spec), parsed[label_key]

        return decode


def _image_and_label(builder: Any) -> tuple[str, str]:
    """Returns the keys of image and label: the `supervised_keys`, or else the only Image and the only ClassLabel."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    by_kind: dict[type, list[str]] = {tfds.features.Image: [], tfds.features.ClassLabel: []}
    for name, feature in features.items():
        if type(feature) in by_kind:
            by_kind[type(feature)].append(name)
    images, labels = by_kind.values()
    keys = builder.info.supervised_keys
    if keys and len(keys) == 2 and keys[0] in images and keys[1] in labels:
        return keys[0], keys[1]
    if len(images) == 1 and len(labels) == 1:
        return images[0], labels[0]
    raise DataError(
        f"data set {builder.info.full_name} is not one of images with one class each: its features are "
        + ", ".join(f"{name} ({type(feature).__name__})" for name, feature in features.items()),
        expected="supervised_keys (Image, ClassLabel), or exactly one Image and one ClassLabel",
        todo="choose an image-classification data set: https://www.tensorflow.org/datasets/catalog/overview",
    )


def _describe(builder: Any, section: DataSection) -> SourceInfo:
    """Describes a TFDS data set, without reading it."""
    image_key, label_key = _image_and_label(builder)
    image, label = builder.info.features[image_key], builder.info.features[label_key]
    name = builder.name + (f"/{builder.builder_config.name}" if builder.builder_config else "")
    if np.dtype(image.np_dtype) != np.uint8:
        raise DataError(
            f"the images of data set {name} are {np.dtype(image.np_dtype)}",
            expected="uint8 images",
            todo="choose a data set with uint8 images, or write a builder that converts them",
        )
    height, width, channels = image.shape
    if section.image_size:
        height, width = section.image_size
    if not height or not width:
        raise DataError(
            f"the images of data set {name} differ in size: their shape is {image.shape}",
            expected="one size for all images",
            todo="set data.image_size, for example `image_size: [64, 64]`; images are then resized",
        )
    if not label.num_classes:
        raise DataError(
            f"data set {name} does not say how many classes its feature {label_key!r} has",
            expected="a ClassLabel with names or num_classes",
            todo="prepare the data set first, or complete the builder",
        )
    licence = builder.info.redistribution_info.license if builder.info.redistribution_info else ""
    return SourceInfo(
        name=name,
        version=str(builder.version),
        image_shape=(height, width, section.channels or channels),
        label_names=tuple(map(nfc, label.names)),
        licence=licence or "",
        citation=builder.info.citation or "",
        description=builder.info.description or "",
    )
