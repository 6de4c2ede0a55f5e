"""TfdsExampleGen's execution properties: what decides the bytes that it writes, and where it reads from."""

from __future__ import annotations

import json

from tfx_estimator.components.unkeyed import UnkeyedDriver
from tfx_estimator.pipeline.config.data import DataSection

# JSON of the `data` section, without LOCATION's entries.
DATA_KEY = "data"
# JSON of the entries that say where the data set is; its fingerprint stands for it in the cache key.
LOCATION_KEY = "location"
FINGERPRINT_KEY = "fingerprint"
_LOCATION = ("dataset", "version", "data_dir", "download")


class Driver(UnkeyedDriver):
    """Keeps the place of the data set out of the cache key."""

    UNKEYED = (LOCATION_KEY,)


def to_properties(data: DataSection, fingerprint: str) -> dict[str, str]:
    """Returns the execution properties of a `data` section."""
    values = {**data.dict(), "shards": data.shards_for()}
    location = {name: values.pop(name) for name in _LOCATION}
    if data.splits.test is None:
        # What earlier versions wrote, without it, is still there.
        del values["splits"]["test"]
    return {
        DATA_KEY: json.dumps(values, sort_keys=True),
        LOCATION_KEY: json.dumps(location, sort_keys=True),
        FINGERPRINT_KEY: fingerprint,
    }


def to_section(data: str, location: str) -> DataSection:
    """Returns the `data` section again.

    Args:
        data: The property `data`.
        location: The property `location`, which the driver blanks: see `components.unkeyed`.
    """
    return DataSection.parse_obj({**json.loads(data), **json.loads(location)})
