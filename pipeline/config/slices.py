"""Slices of the evaluation: a feature, several crossed, or one value; as written, and as what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from pydantic.v1 import StrictStr

# The slice of all examples, where a threshold names the slices that it holds for.
OVERALL = "overall"
_CROSS = "cross"

# `label`; `[label, writer]`; `{cross: [writer], label: 3}`.
SliceItem = Union[StrictStr, tuple[StrictStr, ...], dict[str, Any]]


@dataclass(frozen=True)
class Slice:
    """What one item of a list of slices means.

    Args:
        features: Each value of them, crossed, is a slice.
        values: Only examples with these values, by feature.
    """

    features: tuple[str, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The features that an example must have."""
        return (*self.features, *(name for name, _ in self.values))

    def __str__(self) -> str:
        parts = [*self.features, *(f"{name} {value}" for name, value in self.values)]
        return " x ".join(parts) or OVERALL


def parse_slice(item: Any) -> Slice:
    """Reads an item of the declaration."""
    if isinstance(item, str):
        return Slice((item,))
    if isinstance(item, Mapping):
        crossed = item.get(_CROSS, ())
        features = (crossed,) if isinstance(crossed, str) else tuple(crossed) if _is_list(crossed) else ()
        return Slice(features, tuple((name, value) for name, value in item.items() if name != _CROSS))
    return Slice(tuple(item))


def parse_held(items: Sequence[Any]) -> list[Slice]:
    """Reads the slices that thresholds hold for: all examples, where none is declared.

    Args:
        items: SliceItems, or `overall`.
    """
    return [Slice() if item == OVERALL else parse_slice(item) for item in items] or [Slice()]


def find_wrong(item: Any, held: bool = False) -> tuple[str, str]:
    """Finds what is wrong with an item, but for the names of its features.

    Args:
        held: Is it one that thresholds hold for.

    Returns:
        What is wrong, and what was expected; two empty texts where nothing is.
    """
    if held and item == OVERALL:
        return "", ""
    expected = "a feature, a list of features, or {feature: value}"
    if isinstance(item, Mapping) and _CROSS in item:
        crossed = item[_CROSS]
        if not _is_list(crossed) or not all(isinstance(name, str) for name in crossed):
            return "`cross` is no list of features", "{cross: [feature, feature]}"
    read = parse_slice(item)
    if not read.names or not all(name.strip() for name in read.names):
        return "it names no feature", expected
    for name in read.names:
        if read.names.count(name) > 1:
            return f"`{name}` is crossed with itself", "each feature once"
    for name, value in read.values:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return f"the value of `{name}` is no text and no number", "{feature: value}"
    return "", ""


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
