"""Writes arrays like NumPy's `savez`, one at a time: all together may not fit in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable

import numpy as np


def write_arrays(file: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes named arrays to a file that `np.load` reads."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
