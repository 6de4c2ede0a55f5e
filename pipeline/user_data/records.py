"""IDX files, CIFAR binary batches and prepared TFDS data sets: found in a folder by the names of files."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Optional

from tfx_estimator.pipeline.user_data.names import subfolders
from tfx_estimator.pipeline.user_data.reading import CIFAR, IDX, TFDS

# MNIST's names.
_IDX = re.compile(r"^(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?$")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"


@dataclasses.dataclass(frozen=True)
class CifarKind:
    """One of the two data sets; `train` and `test` match file names; the last label byte is used."""

    name: str
    train: str
    test: str
    label_bytes: int
    num_classes: int
    names_file: str


_CIFAR = (
    CifarKind("cifar10", r"^data_batch_(\d+)\.bin$", r"^test_batch\.bin$", 1, 10, "batches.meta.txt"),
    CifarKind("cifar100", r"^train\.bin$", r"^test\.bin$", 2, 100, "fine_label_names.txt"),
)


def find_idx(folder: Any) -> dict[str, dict[str, Any]]:
    """Returns {split: {"images": path, "labels": path}}; a plain file takes precedence over its gzipped form."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name, reverse=True):
        if match := _IDX.match(path.name):
            split = "train" if match[1] == "train" else "test"
            found.setdefault(split, {})[match[2]] = path
    return dict(sorted(found.items(), reverse=True))  # train before test


def find_cifar(folder: Any) -> tuple[Optional[CifarKind], dict[str, list[Any]]]:
    """Returns which data set it is, None if neither, and the files of each split, batches by their numbers."""
    paths = list(folder.iterdir())
    for kind in _CIFAR:
        found: dict[str, list[Any]] = {}
        for split, pattern in (("train", kind.train), ("test", kind.test)):
            matches = [(path, match) for path in paths if (match := re.match(pattern, path.name))]
            matches.sort(key=lambda pair: [int(number) for number in pair[1].groups()])
            if matches:
                found[split] = [path for path, _ in matches]
        if found:
            return kind, found
    return None, {}


def is_prepared(folder: Any) -> bool:
    """Returns True if a version's folder holds a prepared TFDS data set, possibly damaged.

    TFDS writes both files before it renames the complete folder: if one is missing, it was lost later.
    """
    return (folder / INFO_FILE).exists() or (folder / FEATURES_FILE).exists()


def find_prepared(folder: Any) -> list[Any]:
    """Returns the folders of prepared versions: the folder itself, or those up to three levels below it."""
    if is_prepared(folder):
        return [folder]
    found, level = [], [folder]
    for _ in range(3):
        level = [child for path in level for child in subfolders(path)]
        found += [path for path in level if _VERSION.fullmatch(path.name) and is_prepared(path)]
    return found


def find_layout(folder: Any) -> str:
    """Returns which of these layouts a folder has; empty if none."""
    found = {IDX: find_idx(folder), CIFAR: find_cifar(folder)[0], TFDS: find_prepared(folder)}
    return next((layout for layout, files in found.items() if files), "")
