"""Folders of images by class, and the order of classes. Imports only the standard library, for `validate`."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from tfx_estimator.pipeline.config.paths import is_address, is_path

# Files taken for images by name; others are recognized by their first bytes.
SUFFIXES = (".png", ".jpg", ".jpeg")
# Unsupported image formats, which are reported: to skip them silently would lose data.
OTHER_IMAGES = (".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".avif", ".ppm", ".pgm", ".svg")
# The split of a folder without subfolders for splits.
TRAIN = "train"
BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_OF_TOOLS = re.compile(r"[.]DS_Store|[.]_.*|Thumbs[.]db|[.]ipynb_checkpoints|__MACOSX|__pycache__", re.IGNORECASE)


def split_folders(folder: Any) -> dict[str, Any]:
    """Returns the folder of each split of a folder of images by class.

    `cat/1.png, dog/1.png` is one split, `train`, in the folder itself; `train/cat/1.png, test/cat/2.png` is two.

    Empty for another kind of folder. The folder is a `pathlib.Path` or an `epath.Path`.
    """
    within = list(folders(folder))
    if any(_holds_image(child) for child in within):
        return {TRAIN: folder}
    return {child.name: child for child in within if any(_holds_image(each) for each in folders(child))}


def known_splits(dataset: str) -> dict[str, Path]:
    """Returns the folder of each split if the data set is a local folder of images; else nothing."""
    if not is_path(dataset) or is_address(dataset) or not os.path.isdir(dataset):
        return {}
    try:
        return split_folders(Path(dataset))
    except OSError:
        return {}  # reported when it is opened


def folders(folder: Any) -> Iterator[Any]:
    """Returns the visible subfolders, by name."""
    return (child for child in subfolders(folder) if is_visible(child.name))


def subfolders(folder: Any) -> list[Any]:
    """Returns the subfolders, by name; fast if there are thousands of files."""
    if is_address(str(folder)):
        return sorted(child for child in folder.iterdir() if child.is_dir())
    with os.scandir(folder) as entries:
        return [folder / name for name in sorted(entry.name for entry in entries if is_folder(entry))]


def is_folder(entry: os.DirEntry) -> bool:
    """Returns whether an entry is a folder; a symbolic link to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def children(folder: Any) -> list[Any]:
    """Returns all entries of a folder; `epath.Path.iterdir` silently skips some."""
    if is_address(str(folder)):
        return sorted(folder.iterdir())
    return [folder / name for name in sorted(os.listdir(folder))]


def is_file(path: Any) -> bool:
    """Returns whether a path is a regular file; `epath.Path.is_file` is also true for a pipe, whose opening blocks."""
    return path.is_file() if is_address(str(path)) else os.path.isfile(path)


def is_visible(name: str) -> bool:
    """Returns whether a name is neither hidden nor left by a file manager or tool (__MACOSX)."""
    return not (name.startswith(".") or is_tool_file(name))


def is_tool_file(name: str) -> bool:
    """Returns whether a name is left by a file manager or tool, so that skipping it needs no message."""
    return bool(_OF_TOOLS.fullmatch(name))


def is_image(path: Any) -> bool:
    """Returns whether a file has an image's suffix, even if damaged, or an image's first bytes."""
    if path.name.lower().endswith(SUFFIXES):
        return True
    if not is_file(path):
        return False
    with path.open("rb") as file:
        return file.read(len(BEGINNINGS[0])).startswith(BEGINNINGS)


def _holds_image(folder: Any) -> bool:
    return any(is_visible(child.name) and is_image(child) for child in children(folder))


def nfc(name: str) -> str:
    """Returns a name in Unicode's normal form NFC: file systems and editors differ in theirs."""
    return unicodedata.normalize("NFC", name)


def sort_classes(names: Iterable[str]) -> list[str]:
    """Returns the classes in the order of their labels: by number if all are numbers, else alphabetical."""
    found = sorted(set(map(nfc, names)))
    return sorted(found, key=int) if all(map(_is_number, found)) else found


def find_label(value: Union[int, str], names: Sequence[str]) -> Optional[int]:
    """Returns the label of a class, given by name, or by label if the names are not numbers; None if there is none.

    The names are in the order of their labels.
    """
    text = nfc(str(value))
    if text in names:
        return list(names).index(text)
    numbers = list(map(int, names) if all(map(_is_number, names)) else range(len(names)))
    return numbers.index(int(text)) if _is_number(text) and int(text) in numbers else None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
