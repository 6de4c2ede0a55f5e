"""Finds the layout of a folder or table, and reads it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.user_data.folder import read_folder
from tfx_estimator.pipeline.user_data.names import is_address, is_table
from tfx_estimator.pipeline.user_data.reading import CIFAR, IDX, TFDS, Reading
from tfx_estimator.pipeline.user_data.records import find_cifar, find_idx, find_prepared
from tfx_estimator.pipeline.user_data.table import read_table


def read(dataset: str, declared: Collection[str] = ()) -> Optional[Reading]:
    """Reads a local folder or table; None if there is none of this name, or if it cannot be read.

    Args:
        declared: Names of splits in the declaration.
    """
    if is_address(dataset):
        return None
    place = Path(dataset)
    try:
        if is_table(dataset):
            return read_table(place) if place.is_file() else None
        return _read_folder(place, declared) if os.sep in dataset and place.is_dir() else None
    except OSError:
        return None  # reported when it is opened


def _read_folder(place: Path, declared: Collection[str]) -> Reading:
    if find_idx(place):
        return Reading(IDX, place)
    if find_cifar(place)[0]:
        return Reading(CIFAR, place)
    if find_prepared(place):
        return Reading(TFDS, place)
    return read_folder(place, declared)
