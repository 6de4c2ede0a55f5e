"""Lays out a pipeline as a graph: its components below each other, and an arc for each that waits for another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Lengths in pixels of the page. The style sheet contains the height of a row as well.
ROW = 44
_WIDEST, _NARROWEST, _STEP = 64, 20, 7
_RADIUS = 7


@dataclass(frozen=True)
class Node:
    """One component."""

    name: str
    state: str  # as of the run's summary
    seconds: float
    share: float  # of the longest component's time, 0 to 1
    upstream: list[str]  # the components that it waits for
    y: int


@dataclass(frozen=True)
class Graph:
    """A pipeline, laid out."""

    nodes: list[Node]
    arcs: list[str]  # paths of an SVG
    x: int
    width: int
    height: int


def lay_out(components: Sequence[Mapping[str, Any]]) -> Graph:
    """Lays out the components of a run's summary: `node`, `state`, `seconds` and, of the newer ones, `upstream`."""
    names = [each["node"] for each in components]
    longest = max((each["seconds"] for each in components), default=0) or 1
    nodes = [
        Node(
            each["node"],
            each["state"],
            each["seconds"],
            each["seconds"] / longest,
            [name for name in names if name in each.get("upstream", ())],
            ROW * index + ROW // 2,
        )
        for index, each in enumerate(components)
    ]
    spans = [index - names.index(name) for index, node in enumerate(nodes) for name in node.upstream]
    x = min(_NARROWEST + _STEP * max(spans, default=0), _WIDEST)
    arcs = [
        _arc(x, nodes[names.index(name)].y, node.y, index - names.index(name))
        for index, node in enumerate(nodes)
        for name in node.upstream
    ]
    return Graph(nodes, arcs, x, x + _RADIUS + 2, ROW * len(nodes))


def _arc(x: int, top: int, bottom: int, span: int) -> str:
    if span == 1:
        return f"M{x} {top + _RADIUS}V{bottom - _RADIUS}"
    # The curve comes three quarters of the way to its handles.
    left = max(x - (_RADIUS + _STEP * span) * 4 / 3, 4 - x / 3)
    return f"M{x - _RADIUS} {top}C{left:.0f} {top} {left:.0f} {bottom} {x - _RADIUS - 1} {bottom}"
