"""Finds the layout of a folder or table, and reads it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.user_data.folder import read_folder
from tfx_estimator.pipeline.user_data.names import is_address, is_table
from tfx_estimator.pipeline.user_data.reading import Reading
from tfx_estimator.pipeline.user_data.records import find_layout
from tfx_estimator.pipeline.user_data.table import read_table


def read(dataset: str, declared: Collection[str] = ()) -> Optional[Reading]:
    """Reads a local folder or table; None if there is none of this name, or if it cannot be read.

    Args:
        declared: Names of splits in the declaration.
    """
    place = Path(dataset)
    if is_address(dataset) or not (place.is_file() if is_table(dataset) else os.sep in dataset and place.is_dir()):
        return None
    try:
        if is_table(dataset):
            return read_table(place)
        layout = find_layout(place)
        return Reading(layout, place) if layout else read_folder(place, declared)
    except OSError:
        return None  # reported when it is opened
