"""Writes a declaration as YAML, with where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.yaml_text import inline

# Comments further right than this would hide the values.
_MAX_COLUMN = 60


def render(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> str:
    """Writes a declaration's values as block YAML, one value a line, which loads to the same values.

    Where each value came from, by dotted path, becomes aligned comments.
    """
    lines = list(_lines(values, 0, ()))
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    comments = [one_line(origins.get(path, "")) if path else "" for _, path in lines]
    widths = [len(text) for (text, _), comment in zip(lines, comments) if comment and len(text) <= _MAX_COLUMN]
    column = max(widths, default=0)
    rows = (f"{text:{column}}  # {comment}" if comment else text for (text, _), comment in zip(lines, comments))
    return "".join(f"{row}\n" for row in rows)


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields (path, value) of every value that is no section; an empty section counts as a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _lines(values: Mapping[str, Any], depth: int, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(line, dotted path of its value, empty for a section's own line)."""
    for key, value in values.items():
        head = "  " * depth + inline(key) + ":"
        if isinstance(value, Mapping) and value:
            yield head, ""
            yield from _lines(value, depth + 1, (*path, key))
        else:
            yield f"{head} {inline(value)}", ".".join((*path, key))
