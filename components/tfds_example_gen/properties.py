"""TfdsExampleGen's execution properties, and the custom properties of its artifact, which describe the data set."""

from __future__ import annotations

import json

from tfx.types import artifact

from tfx_estimator.components.execution import UnkeyedDriver
from tfx_estimator.data.sources import SourceInfo
from tfx_estimator.pipeline.config.data import DataSection, Splits

# JSON of the `data` section, without LOCATION's entries.
DATA_KEY = "data"
# JSON of the entries for the location of the data set; in the cache key the fingerprint replaces them.
LOCATION_KEY = "location"
FINGERPRINT_KEY = "fingerprint"
_LOCATION = ("dataset", "version", "data_dir", "download")
# Of tables, which TFX's own components read.
_OF_TABLES = ("csv", "parquet", "tfrecord", "schema", "label", "weight", "task", "split_by")

# Properties of the artifact.
DATASET = "dataset"
VERSION = "version"
IMAGE_SHAPE = "image_shape"
LABEL_NAMES = "label_names"
# Expression of the split `test`, if declared.
TEST = "test"
LICENCE = "licence"
CITATION = "citation"


class Driver(UnkeyedDriver):
    """Keeps the location of the data set out of the cache key."""

    UNKEYED = (LOCATION_KEY,)


def to_properties(data: DataSection, fingerprint: str) -> dict[str, str]:
    """Returns the execution properties of a `data` section."""
    values = {**data.dict(), "shards": data.shards_for()}
    location = {name: values.pop(name) for name in _LOCATION}
    for name in _OF_TABLES:
        del values[name]
    # As earlier versions wrote it, to keep their caches valid.
    if data.splits.test is None:
        del values["splits"]["test"]
    if data.channels is None:
        del values["channels"]
    return {
        DATA_KEY: json.dumps(values, sort_keys=True),
        LOCATION_KEY: json.dumps(location, sort_keys=True),
        FINGERPRINT_KEY: fingerprint,
    }


def to_section(data: str, location: str) -> DataSection:
    """Returns the `data` section from the properties `data` and `location`; the driver blanks the latter."""
    return DataSection.parse_obj({**json.loads(data), **json.loads(location)})


def num_examples(split: str) -> str:
    """Returns the name of the property that counts a split's examples."""
    return f"num_examples_{split}"


def write_properties(
    examples: artifact.Artifact, info: SourceInfo, fingerprint: str, counts: dict[str, int], splits: Splits
) -> None:
    """Sets the properties of the data set, and the number of examples of each split."""
    values = {
        DATASET: info.name,
        VERSION: info.version,
        FINGERPRINT_KEY: fingerprint,
        IMAGE_SHAPE: json.dumps(list(info.image_shape)),
        LABEL_NAMES: json.dumps(list(info.label_names)),
        LICENCE: info.licence,
        CITATION: info.citation,
    }
    if splits.test is not None:
        values[TEST] = str(splits.test)
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
