"""Folders of a test, outside of which nothing is written."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# pytest's, if its plug-in is used.
MAKERS: list[Callable[[str], Path]] = []


def new_folder(name: str) -> str:
    """Makes an empty folder: pytest's, or a temporary one until this process ends."""
    if MAKERS:
        return str(MAKERS[-1](name))
    return tempfile.mkdtemp(prefix=f"{name}-", dir=_root())


@contextlib.contextmanager
def temporary_in(folder: str) -> Iterator[None]:
    """Has temporary files, such as Beam's, in a folder."""
    before, tempfile.tempdir = tempfile.tempdir, os.path.join(folder, "tmp")
    os.makedirs(tempfile.tempdir)
    try:
        yield
    finally:
        tempfile.tempdir = before


@functools.cache
def _root() -> str:
    root = tempfile.mkdtemp(prefix="tfx-estimator-testing-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
