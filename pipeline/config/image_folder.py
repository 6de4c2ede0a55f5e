"""Folders of images by class, and the order of classes. Standard library only: `validate` uses it."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from tfx_estimator.pipeline.config.paths import is_address, is_path

# What is called so is meant to be an image; other files are looked into.
SUFFIXES = (".png", ".jpg", ".jpeg")
# Images, but of forms that are not read: to leave one out without a word would be a loss.
OTHER_IMAGES = (".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".avif", ".ppm", ".pgm", ".svg")
# The only split of a folder that has none.
TRAIN = "train"
BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_OF_TOOLS = re.compile(r"[.]DS_Store|[.]_.*|Thumbs[.]db|[.]ipynb_checkpoints|__MACOSX|__pycache__", re.IGNORECASE)


def split_folders(folder: Any) -> dict[str, Any]:
    """Returns the folder of each split of a folder of images by class.

    `cat/1.png, dog/1.png` is one split, `train`, in the folder itself; `train/cat/1.png, test/cat/2.png` is two.

    Nothing where this is another kind of folder, which is a `pathlib.Path` or an `epath.Path`.
    """
    within = list(folders(folder))
    if any(_holds_image(child) for child in within):
        return {TRAIN: folder}
    return {child.name: child for child in within if any(_holds_image(each) for each in folders(child))}


def known_splits(dataset: str) -> dict[str, Path]:
    """Returns the folder of each split of a data set, where it is a folder of images of this machine; else nothing."""
    if not is_path(dataset) or is_address(dataset) or not os.path.isdir(dataset):
        return {}
    try:
        return split_folders(Path(dataset))
    except OSError:
        return {}  # told when it is opened


def folders(folder: Any) -> Iterator[Any]:
    """Returns the folders in a folder that count, by name."""
    return (child for child in subfolders(folder) if is_visible(child.name))


def subfolders(folder: Any) -> list[Any]:
    """Returns the folders in a folder, by name, in little time where it holds thousands of files."""
    if is_address(str(folder)):
        return sorted(child for child in folder.iterdir() if child.is_dir())
    with os.scandir(folder) as entries:
        return [folder / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def children(folder: Any) -> list[Any]:
    """Returns whatever is in a folder; `epath.Path.iterdir` would leave out some without a word."""
    if is_address(str(folder)):
        return sorted(folder.iterdir())
    return [folder / name for name in sorted(os.listdir(folder))]


def is_file(path: Any) -> bool:
    """Tells a file from a folder, and from a pipe, which `epath.Path` does not: whoever opens one waits."""
    return path.is_file() if is_address(str(path)) else os.path.isfile(path)


def is_visible(name: str) -> bool:
    """Tells a name from those that hide, and those that file managers and tools leave (__MACOSX)."""
    return not (name.startswith(".") or is_tool_file(name))


def is_tool_file(name: str) -> bool:
    """Tells what file managers and tools leave, of which nobody need hear."""
    return bool(_OF_TOOLS.fullmatch(name))


def is_image(path: Any) -> bool:
    """Tells images by their first bytes, and what is called one, which may be damaged."""
    if path.name.lower().endswith(SUFFIXES):
        return True
    if not is_file(path):
        return False
    with path.open("rb") as file:
        return file.read(len(BEGINNINGS[0])).startswith(BEGINNINGS)


def _holds_image(folder: Any) -> bool:
    return any(is_visible(child.name) and is_image(child) for child in children(folder))


def nfc(name: str) -> str:
    """Returns the one form of a name that Unicode writes in several: file systems and editors differ in theirs."""
    return unicodedata.normalize("NFC", name)


def sort_classes(names: Iterable[str]) -> list[str]:
    """The classes in the order of their labels: by number where all are numbers, else alphabetical."""
    found = sorted(set(map(nfc, names)))
    return sorted(found, key=lambda name: (len(_digits(name)), _digits(name))) if all(map(_is_number, found)) else found


def find_label(value: Union[int, str], names: Sequence[str]) -> Optional[int]:
    """Returns the label of the class that is meant by its name; or by its label, where the names are no numbers.

    The names are in the order of their labels; None where there is no such class.
    """
    text = nfc(str(value))
    if text in names:
        return list(names).index(text)
    numbers = [_digits(name) for name in names] if all(map(_is_number, names)) else list(map(str, range(len(names))))
    return numbers.index(_digits(text)) if _is_number(text) and _digits(text) in numbers else None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _digits(number: str) -> str:
    # As text: Python makes no number of some thousand digits.
    return number.lstrip("0") or "0"
