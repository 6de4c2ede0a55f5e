"""What `tfx_estimator.testing` offers, and the plug-in of pytest; all of its files are in folders of the test."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def root() -> Path:
    """Makes a folder until this process ends; pytest's plug-in replaces it by pytest's own."""
    made = tempfile.mkdtemp(prefix="tfx-estimator-testing-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def new_folder(name: str) -> str:
    """Makes an empty folder."""
    return tempfile.mkdtemp(prefix=f"{name}-", dir=root())
