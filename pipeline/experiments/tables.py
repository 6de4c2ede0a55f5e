"""What an experiment came to as rows: the same for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional, TypeVar

from rich.console import Console
from rich.table import Table

ABSENT = "—"
MEGABYTE = 1 << 20

_T = TypeVar("_T")
# A title, and a cell for each of those that stand side by side.
Row = tuple[str, list[str]]


def fact_rows(facts: Mapping[str, Callable[[_T], Optional[str]]], compared: Iterable[_T]) -> list[Row]:
    """Returns a fact a row; a fact that none of them has is left out."""
    each_one = list(compared)
    rows = {title: [tell(one) for one in each_one] for title, tell in facts.items()}
    return [(title, [cell or ABSENT for cell in cells]) for title, cells in rows.items() if any(cells)]


def told(facts: Mapping[str, Any], name: str, show: Callable[[Any], str]) -> Optional[str]:
    """Returns a fact as it is shown; None where there is none."""
    value = facts.get(name)
    return None if value is None else show(value)


def differences(all_values: Sequence[Mapping[str, str]]) -> list[Row]:
    """Returns the keys whose values are not the same in all, with each one's value."""
    keys = dict.fromkeys(key for values in all_values for key in values)
    rows = [(key, [values.get(key, ABSENT) for values in all_values]) for key in keys]
    return [(key, cells) for key, cells in rows if len(set(cells)) > 1]


def print_rows(console: Console, titles: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints a table: the first column is text, the others are numbers."""
    table = Table(box=None, pad_edge=False)
    for place, title in enumerate(titles):
        table.add_column(title, justify="right" if place else "left")
    for title, cells in rows:
        table.add_row(title, *cells)
    console.print()
    console.print(table)
