"""Makes the declaration's relative paths absolute."""

from __future__ import annotations

import os
from typing import Any

from pipeline.config.yaml_text import Path

# These are always paths; data.dataset is one where it looks like one.
PATHS: tuple[Path, ...] = (
    ("data", "data_dir"),
    ("trainer", "module_file"),
    ("transform", "module_file"),
    ("pusher", "destination"),
)


def looks_like_folder(dataset: str) -> bool:
    """Tells a folder from the name of a data set."""
    return dataset.startswith((".", "~")) or os.sep in dataset


def resolve_paths(values: dict[str, Any], bases: dict[Path, str]) -> set[Path]:
    """Makes paths absolute, in place.

    Args:
        values: The declaration's values.
        bases: The folder that each path's value is relative to: the declaration file's, or the current one.

    Returns:
        The paths whose value changed.
    """
    changed = set()
    for path in (*PATHS, ("data", "dataset")):
        section = values.get(path[0])
        value = section.get(path[1]) if isinstance(section, dict) else None
        if not isinstance(value, str) or not value or "://" in value or "\0" in value:
            continue
        if path == ("data", "dataset") and not looks_like_folder(value):
            continue
        absolute = os.path.normpath(os.path.join(bases.get(path, os.getcwd()), os.path.expanduser(value)))
        if absolute != value:
            values[path[0]][path[1]] = absolute
            changed.add(path)
    return changed
