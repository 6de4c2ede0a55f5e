"""Files of an execution, on this machine or in a bucket, whose client is loaded only where one is meant."""

from __future__ import annotations

import os
from typing import Any, Optional

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.paths import is_address


def exists(path: str) -> bool:
    """Tells whether there is a file or folder."""
    return _fileio().exists(path) if is_address(path) else os.path.exists(path)


def read(path: str) -> Optional[str]:
    """Returns a file's text; None if there is none."""
    if not exists(path):
        return None
    if not is_address(path):
        with open(path, encoding="utf-8") as file:
            return file.read()
    with _fileio().open(path, "rb") as stored:
        return stored.read().decode()


def write(path: str, content: bytes) -> None:
    """Writes a file, whole or not at all, with the folders around it."""
    make_folder(os.path.dirname(path))
    if not is_address(path):
        write_whole(path, content)
        return
    with _fileio().open(path, "wb") as stored:
        stored.write(content)


def make_folder(path: str) -> None:
    """Makes a folder, with those around it, where none is there."""
    if is_address(path):
        _fileio().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def _fileio() -> Any:
    from tfx.dsl.io import fileio

    return fileio
