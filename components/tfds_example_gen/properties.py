"""What an Examples artifact of ours says about its data set, as custom properties."""

from __future__ import annotations

import json

from tfx.types import artifact

from tfx_estimator.data.sources import SourceInfo
from tfx_estimator.pipeline.config.data import Splits

DATASET = "dataset"
VERSION = "version"
FINGERPRINT = "fingerprint"
IMAGE_SHAPE = "image_shape"
LABEL_NAMES = "label_names"
# Expression of the split `test`, where one is declared.
TEST = "test"
LICENCE = "licence"
CITATION = "citation"


def num_examples(split: str) -> str:
    """Returns the name of the property that counts a split's examples."""
    return f"num_examples_{split}"


def write_properties(
    examples: artifact.Artifact, info: SourceInfo, fingerprint: str, counts: dict[str, int], splits: Splits
) -> None:
    """Writes them.

    Args:
        counts: Number of examples of each split.
    """
    values = {
        DATASET: info.name,
        VERSION: info.version,
        FINGERPRINT: fingerprint,
        IMAGE_SHAPE: json.dumps(list(info.image_shape)),
        LABEL_NAMES: json.dumps(list(info.label_names)),
        LICENCE: info.licence,
        CITATION: info.citation,
    }
    if splits.test is not None:
        values[TEST] = splits.test
    for name, value in values.items():
        examples.set_string_custom_property(name, value)
    for split, count in counts.items():
        examples.set_int_custom_property(num_examples(split), count)


def image_shape(examples: artifact.Artifact) -> tuple[int, int, int]:
    """Returns (height, width, channels) of the images of an Examples artifact."""
    height, width, channels = json.loads(examples.get_string_custom_property(IMAGE_SHAPE))
    return height, width, channels


def label_names(examples: artifact.Artifact) -> tuple[str, ...]:
    """Returns the class names of an Examples artifact, in the order of the labels."""
    return tuple(json.loads(examples.get_string_custom_property(LABEL_NAMES)))
