"""Finds what lies in a folder or table, and reads it: images by class, a table, or files of records."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.folder import read_folder
from tfx_estimator.pipeline.user_data.names import TRAIN, is_address, is_table, subfolders
from tfx_estimator.pipeline.user_data.reading import CIFAR, IDX, TABLE, TFDS, Reading

# The names of a table's columns.
PATHS = ("image", "path", "file", "filename")
LABELS = ("label", "class")
SPLITS = ("split",)
_HEAD_BYTES = 1 << 16
# MNIST's names.
_IDX = re.compile(r"^(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?$")
# Of each data set the names of the files of both splits.
_CIFAR = {
    "cifar10": {TRAIN: r"data_batch_\d+\.bin", "test": r"test_batch\.bin"},
    "cifar100": {TRAIN: r"train\.bin", "test": r"test\.bin"},
}
_VERSION = re.compile(r"\d+\.\d+\.\d+")
INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"


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
            return _read_table(place)
        layout = find_layout(place)
        splits = find_idx(place) or find_cifar(place)[1]
        found = Reading(layout, place, files={name: {} for name in splits}) if layout else read_folder(place, declared)
        if found.refusal:
            # Of a Parquet file the columns are unknown.
            tables = (path for path in sorted(place.iterdir()) if path.suffix.lower() == ".csv" and path.is_file())
            if table := next((path for path in tables if not _read_table(path).refusal), None):
                found.refusal.todo = one_line(f"set data.dataset to {table}")
        return found
    except OSError:
        return None  # reported when it is opened


def find_layout(folder: Any) -> str:
    """Returns which of these layouts a folder has; empty if none."""
    found = {IDX: find_idx(folder), CIFAR: find_cifar(folder)[0], TFDS: find_prepared(folder)}
    return next((layout for layout, files in found.items() if files), "")


def find_idx(folder: Any) -> dict[str, dict[str, Any]]:
    """Returns {split: {"images": path, "labels": path}}; a plain file takes precedence over its gzipped form."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name, reverse=True):
        if match := _IDX.match(path.name):
            split = "train" if match[1] == "train" else "test"
            found.setdefault(split, {})[match[2]] = path
    return dict(sorted(found.items(), reverse=True))  # train before test


def find_cifar(folder: Any) -> tuple[str, dict[str, list[Any]]]:
    """Returns `cifar10` or `cifar100`, empty if neither, and the files of each split, batches by their numbers."""
    paths = sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
    for name, splits in _CIFAR.items():
        files = {split: [path for path in paths if re.fullmatch(form, path.name)] for split, form in splits.items()}
        if any(files.values()):
            return name, {split: found for split, found in files.items() if found}
    return "", {}


def is_prepared(folder: Any) -> bool:
    """Returns True if a version's folder holds a prepared TFDS data set, possibly damaged.

    TFDS writes both files before it renames the complete folder: if one is missing, it was lost later.
    """
    return (folder / INFO_FILE).exists() or (folder / FEATURES_FILE).exists()


def prepared_versions(folder: Any) -> list[Any]:
    """Returns the folders of the prepared versions in a data set's folder."""
    return [path for path in subfolders(folder) if _VERSION.fullmatch(path.name) and is_prepared(path)]


def find_prepared(folder: Any) -> list[Any]:
    """Returns the folders of prepared versions: the folder itself, or those up to three levels below it."""
    if is_prepared(folder):
        return [folder]
    found, level = [], [folder]
    for _ in range(3):
        found += [version for path in level for version in prepared_versions(path)]
        level = [child for path in level for child in subfolders(path)]
    return found


def _read_table(table: Path) -> Reading:
    """Reads the names of a CSV's columns."""
    if table.suffix.lower() != ".csv":
        return Reading(TABLE, table)
    with open_regular(table) as file:
        head = file.read(_HEAD_BYTES)
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError as error:
        return Reading(TABLE, table, refusal=refuse_encoding(error, table))
    columns = next(csv.reader(io.StringIO(text.replace("\0", ""), newline="")), [])
    refusals = (refuse_columns(columns, names, table) for names in (PATHS, LABELS))
    return Reading(TABLE, table, refusal=next(filter(None, refusals), None))


def refuse_encoding(error: UnicodeDecodeError, path: Any) -> DataError:
    """Returns the error for a file that is not in UTF-8."""
    likely = "UTF-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"
    what = one_line(f"{path} is not text in UTF-8, but probably in {likely}: see byte {error.start:,}")
    return DataError(what, expected="UTF-8", todo=f"convert it: `iconv -f {likely} -t UTF-8 OLD > NEW`")


def refuse_columns(columns: Sequence[str], names: Sequence[str], table: Any) -> Optional[DataError]:
    """Returns why none of the columns, or more than one, has one of these names; None if one has."""
    found = [name for name in columns if name.strip().lower() in names]
    if len(found) == 1:
        return None
    searched = " or ".join(dict.fromkeys(found) or names)
    expected = f"one; its columns are {', '.join(name for name in columns if name) or 'of other types'}"
    return DataError(
        one_line(f"{table} has {len(found) or 'no'} columns named {searched}"),
        expected="commas between columns" if len(columns) == 1 and re.search("[;\t]", columns[0]) else expected,
        todo="name the columns image (or path, file, filename), label (or class), and split if there are several; or, "
        f"for a table of features, declare it by data{Path(str(table)).suffix.lower()}",
    )
