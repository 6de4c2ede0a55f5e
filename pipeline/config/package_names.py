"""Names that TFDS, TFMA and Keras define, read from their files: an import of them would take many seconds."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

_CLASS = re.compile(r"^class ([A-Z]\w*)\(", re.MULTILINE)
# Of TFDS: folders of older data sets, whose names are those of their classes.
_NOT_OF_DATA = ("core", "datasets", "scripts", "testing")


def tfds_has(name: str, data_dir: Optional[str]) -> bool:
    """Returns whether TFDS knows a data set, or one of its folders of prepared data has it; True without TFDS."""
    tfds = _folder("tensorflow_datasets")
    places = [os.environ.get("TFDS_DATA_DIR"), "~/tensorflow_datasets", data_dir]
    held = any(os.path.isdir(os.path.join(os.path.expanduser(place), name)) for place in places if place)
    return tfds is None or held or (tfds / "datasets" / name).is_dir() or name in tfds_names()


@functools.lru_cache(maxsize=1)
def tfds_names() -> list[str]:
    """Returns the names of the data sets of TFDS."""
    tfds = _folder("tensorflow_datasets")
    if tfds is None:
        return []
    old = (child for child in tfds.iterdir() if child.is_dir() and child.name not in _NOT_OF_DATA)
    classes = (name for child in old for name in _classes(child, "**/*.py"))
    # As TFDS makes them.
    snake = (re.sub("([a-z0-9])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)) for name in classes)
    return [*map(str.lower, snake), *(child.name for child in (tfds / "datasets").iterdir() if child.is_dir())]


@functools.lru_cache(maxsize=1)
def metric_names() -> list[str]:
    """Returns the names of the classes among which TFMA finds a metric; none without TFMA."""
    tfma, keras = _folder("tensorflow_model_analysis"), _folder("tf_keras") or _folder("keras")
    if tfma is None or keras is None:
        return []
    return [*_classes(tfma / "metrics", "*.py"), *_classes(keras / "src" / "metrics", "*.py")]


def _classes(folder: Path, pattern: str) -> Iterator[str]:
    for file in folder.glob(pattern):
        if not file.name.endswith("_test.py"):
            yield from _CLASS.findall(file.read_text(encoding="utf-8", errors="replace"))


def _folder(package: str) -> Optional[Path]:
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
