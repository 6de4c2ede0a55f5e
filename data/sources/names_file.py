"""A file of classes, one a line, in the order of their labels."""

from __future__ import annotations

from typing import Any

from tfx_estimator.data.sources.damage import damaged, reading
from tfx_estimator.pipeline.config.classes import in_form


def read_names(path: Any) -> list[str]:
    """Returns the classes that a file (`epath.Path`) names.

    Args:
        path: Of the file; empty lines and the mark that editors begin UTF-8 with are none of it.

    Raises:
        DamagedDataError: It is no text, or names a class twice.
    """
    with reading(path):
        lines = path.read_text().removeprefix("\ufeff").split("\n")
    names = [in_form(line.strip()) for line in lines if line.strip()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise damaged(path, f"it names {twice!r} more than once", "each class once", "correct the file")
    return names
