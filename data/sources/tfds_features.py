"""Which two features of a TFDS data set are the image and its label."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.image_folder import in_form


def image_and_label(builder: Any) -> tuple[str, str]:
    """Returns the names of the image and the label feature.

    They are the builder's `supervised_keys`, or else its only Image and its only ClassLabel.

    Raises:
        DataError: this is no data set of images with one class each.
    """
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


def describe(builder: Any, section: DataSection) -> SourceInfo:
    """Returns what is known of a TFDS data set before it is read.

    Raises:
        DataError: its images are not uint8, or differ in size without `image_size`, or its classes are not known.
    """
    image_key, label_key = image_and_label(builder)
    image, label = builder.info.features[image_key], builder.info.features[label_key]
    name = builder.name + (f"/{builder.builder_config.name}" if builder.builder_config else "")
    if np.dtype(image.np_dtype) != np.uint8:
        raise DataError(
            f"the images of data set {name} are {np.dtype(image.np_dtype)}",
            expected="uint8 images",
            todo="choose a data set with uint8 images, or write a builder that converts them",
        )
    if len(image.shape) != 3 or not image.shape[2]:
        raise DataError(
            f"the images of data set {name} have the shape {image.shape}",
            expected="(height, width, channels) with a known number of channels",
            todo="write a builder that gives images of one such shape",
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
        image_shape=(height, width, channels),
        label_names=tuple(map(in_form, label.names)),
        licence=licence or "",
        citation=builder.info.citation or "",
        description=builder.info.description or "",
    )
