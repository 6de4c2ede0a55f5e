"""Folders of a test, outside of which nothing is written."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

# pytest's, if its plug-in is used.
MAKERS: list[Callable[[str], Path]] = []


def new_folder(name: str) -> str:
    """Makes an empty folder: pytest's, or a temporary one until this process ends."""
    if MAKERS:
        return str(MAKERS[-1](name))
    return tempfile.mkdtemp(prefix=f"{name}-", dir=_root())


@functools.cache
def _root() -> str:
    root = tempfile.mkdtemp(prefix="tfx-estimator-testing-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
