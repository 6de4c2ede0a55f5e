"""Combines options into few declarations that contain every accepted pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.techniques.options import OPTIONS, PATHS, together
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.load import load

Pair = tuple[str, str]


class Row(NamedTuple):
    path: str
    options: tuple[str, ...]

    @property
    def pairs(self) -> set[Pair]:
        return set(itertools.combinations(sorted(self.options), 2))


def declared(row: Row, folder: Path, weights: Path) -> Declaration:
    values: dict[str, Any] | None = together(row.path, row.options, weights)
    if values is None:
        raise DeclarationError("two values for one entry")
    data = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}
    file = folder / "row.yaml"
    file.write_text(yaml.safe_dump({"name": "row", "data": data, "trainer": values}))
    return load(str(file)).declaration


def accepted_pairs(folder: Path, weights: Path) -> dict[str, set[Pair]]:
    names = list(itertools.combinations(sorted(OPTIONS), 2))
    return {path: {pair for pair in names if _is_accepted(Row(path, pair), folder, weights)} for path in PATHS}


def cover(accepted: dict[str, set[Pair]], folder: Path, weights: Path) -> list[Row]:
    """Combines pairs into rows, so that each path that accepts a pair has a row with it."""

    def fits(row: Row) -> bool:
        return row.pairs <= accepted[row.path] and _is_accepted(row, folder, weights)

    rows: list[Row] = []
    for path, pairs in accepted.items():
        left = set(pairs)
        while left:
            rows.append(_filled(Row(path, min(left)), left, fits))
            left -= rows[-1].pairs
    return rows


def _filled(row: Row, left: set[Pair], fits: Callable[[Row], bool]) -> Row:
    """Adds options as long as one covers new pairs, each time the one that covers most."""
    out = set(row.options)
    while True:
        gains = {
            other: len((Row(row.path, (*row.options, other)).pairs - row.pairs) & left)
            for other in sorted(set(OPTIONS) - out)
        }
        for other in sorted(gains, key=lambda each: -gains[each]):
            out.add(other)
            if gains[other] and fits(more := Row(row.path, (*row.options, other))):
                row = more
                break
        else:
            return row


def _is_accepted(row: Row, folder: Path, weights: Path) -> bool:
    try:
        declared(row, folder, weights)
    except DeclarationError:
        return False
    return True
