"""Recognises a folder of images by class, from names alone. Standard library only: `validate` uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.paths import is_address

SUFFIXES = (".png", ".jpg", ".jpeg")
# The only split of a folder that has none.
TRAIN = "train"


def split_folders(folder: Any) -> dict[str, Any]:
    """Returns the folder of each split of a folder of images by class.

    `cat/1.png, dog/1.png` is one split, `train`, in the folder itself; `train/cat/1.png, test/cat/2.png` is two.

    Args:
        folder: `pathlib.Path`, or `epath.Path`.

    Returns:
        Nothing where this is another kind of folder.
    """
    children = list(folders(folder))
    if any(_holds_image(child) for child in children):
        return {TRAIN: folder}
    return {child.name: child for child in children if any(_holds_image(each) for each in folders(child))}


def folders(folder: Any) -> Iterator[Any]:
    """Returns the folders in a folder that count, by name: not those that file managers and tools leave."""
    return (child for child in subfolders(folder) if counts(child.name) and not is_image(child.name))


def subfolders(folder: Any) -> list[Any]:
    """Returns the folders in a folder, by name, in little time where it holds thousands of files."""
    if is_address(str(folder)):
        return sorted(child for child in folder.iterdir() if child.is_dir())
    with os.scandir(folder) as entries:
        return [folder / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def counts(name: str) -> bool:
    """Tells a name from those that hide (.DS_Store, __MACOSX)."""
    return not name.startswith((".", "__"))


def is_image(name: str) -> bool:
    """Tells images by the ends of their names."""
    return name.lower().endswith(SUFFIXES)


def _holds_image(folder: Any) -> bool:
    return any(is_image(child.name) and counts(child.name) for child in folder.iterdir())
