"""Names of files, classes and splits, and formats of images. Imports only the standard library, for `validate`."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

# Enough of a file to recognise its format.
HEAD_BYTES = 32
# Pillow's names; the others are named in errors only.
READ = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
EXPECTED = "a PNG, JPEG, WebP or BMP file, or a GIF of one picture"
_BEGINNINGS = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "JPEG": rb"\xff\xd8\xff",
    "WEBP": rb"RIFF....WEBP",
    "BMP": rb"BM.{4}\0{4}",
    "GIF": rb"GIF8[79]a",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "HEIC": rb".{4}ftyp(?:he|mif1|msf1)",
    "AVIF": rb".{4}ftypavi",
}
_NAMES = {"JPG": "JPEG", "TIF": "TIFF", "HEIF": "HEIC", "JP2": "JPEG 2000", "JXL": "JPEG XL", "DCM": "DICOM"}
_NAMES |= {name: name for name in (*_BEGINNINGS, "PBM", "PGM", "PPM", "SVG")}
SUFFIXES = tuple(f".{name.lower()}" for name in _NAMES)
# The split of a folder without subfolders for splits.
TRAIN = "train"
# Of file managers and tools; of NAS, mounted disks and Windows.
_OF_TOOLS = re.compile(
    r"[.]DS_Store|[.]_.*|Thumbs[.]db|[.]ipynb_checkpoints|__MACOSX|__pycache__"
    r"|lost[+]found|@(eaDir|Recycle|tmp)|#(recycle|snapshot)|~?[.]?snapshots?"
    r"|System Volume Information|[$]RECYCLE[.]BIN|desktop[.]ini|[.]Trash.*",
    re.IGNORECASE,
)
_TABLES = (".csv", ".parquet")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Words in the names of splits' folders, such as `Training`, `seg_test` or `val2017`, and what each is for.
_ROLES = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation", "dev"), "eval"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def is_address(path: str) -> bool:
    """Returns whether a path is an object store's address, such as gs://bucket/folder."""
    return bool(_SCHEME.match(path))


def is_table(dataset: str) -> bool:
    """Returns whether the data set is a CSV or Parquet file of paths and labels."""
    return dataset.lower().endswith(_TABLES)


def role(name: str) -> str:
    """Returns what the split of this name is for: `train`, `eval` or `test`; empty if its name is no split's."""
    return next((_ROLES[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _ROLES), "")


def by_role(splits: Iterable[str]) -> list[str]:
    """Returns the names of splits in the order of their use: those for training first, those for the Evaluator last."""
    return sorted(splits, key=lambda name: (TRAIN, "", "eval", "test").index(role(name)))


def plain_role(name: str) -> str:
    """Returns the role of a name that is a split's alone, such as `Test` or `val2017`; else empty."""
    return _ROLES.get(name.lower().strip("0123456789_-"), "")


def entries(folder: Any) -> list[tuple[str, bool]]:
    """Returns the names in a folder, in order, and whether each is a folder's; fast if there are thousands of files."""
    if is_address(str(folder)):
        # Each question to a store takes as long as many answers of a disk.
        paths = sorted(folder.iterdir())
        return [(path.name, not path.name.lower().endswith(SUFFIXES) and path.is_dir()) for path in paths]
    with os.scandir(folder) as found:
        # `is_dir` raises an error for a link to itself.
        return sorted((each.name, os.path.isdir(each) if each.is_symlink() else each.is_dir()) for each in found)


def subfolders(folder: Any) -> list[Any]:
    """Returns the subfolders, by name."""
    return [folder / name for name, is_folder in entries(folder) if is_folder]


def is_file(path: Any) -> bool:
    """Returns whether a path is a regular file; `epath.Path.is_file` is also true for a pipe, whose opening blocks."""
    return path.is_file() if is_address(str(path)) else os.path.isfile(path)


def is_visible(name: str) -> bool:
    """Returns whether a name is neither hidden nor left by a file manager or tool (__MACOSX)."""
    return not (name.startswith(".") or is_tool_file(name))


def is_tool_file(name: str) -> bool:
    """Returns whether a name is left by a file manager or tool, so that skipping it needs no message."""
    return bool(_OF_TOOLS.fullmatch(name))


def find_format(head: bytes, name: str = "") -> str:
    """Returns the format that a file's first bytes show, or else its name; empty if it is no image."""
    shown = (each for each, beginning in _BEGINNINGS.items() if re.match(beginning, head, re.DOTALL))
    return next(shown, _NAMES.get(name.rpartition(".")[2].upper(), ""))


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
