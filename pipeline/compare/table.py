"""Shows a comparison on the terminal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.compare.results import Comparison, Pair, Result, show_p
from tfx_estimator.pipeline.compare.statistics import Interval
from tfx_estimator.pipeline.report.metrics import show_metric
from tfx_estimator.pipeline.report.page import show_number, show_percent, show_seconds

_MEGABYTE = 1 << 20
_ABSENT = "—"


def result_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Returns the facts of each candidate, a fact a row; facts that none has are left out."""
    rows: dict[str, Callable[[Result], str]] = {
        "accuracy": lambda each: show_share(each.accuracy),
        "mean loss": lambda each: show_value(each.loss),
        "calibration error": lambda each: show_percent(each.ece, 2),
        **{name: functools.partial(_metric, name=name) for each in comparison.results for name in each.metrics},
        "steps": lambda each: _number(each.training, "last_step"),
        "exported step": lambda each: _number(each.training, "exported_step"),
        "training": lambda each: _shown(each.training, "train_seconds", show_seconds),
        "examples/s": lambda each: _number(each.training, "steady_examples_per_second"),
        "CPU µs/example": lambda each: _number(each.training, "cpu_micros_per_example"),
        "peak memory": lambda each: _shown(each.training, "peak_rss", lambda size: f"{size / _MEGABYTE:,.0f} MB"),
        "restarts": lambda each: _number(each.training, "restarts"),
        "model": lambda each: f"{each.model_bytes / _MEGABYTE:,.2f} MB",
        "parameters": lambda each: f"{each.parameters:,}",
    }
    made = [(title, [make(each) for each in comparison.results]) for title, make in rows.items()]
    return [(title, cells) for title, cells in made if set(cells) != {_ABSENT}]


def pair_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Returns what tells each candidate from the first, a fact a row."""
    rows: dict[str, Callable[[Pair], str]] = {
        "accuracy, points": lambda each: show_points(each.accuracy),
        "mean loss, higher by": lambda each: show_value(each.loss, signed=True),
        "only the first right": lambda each: f"{each.mcnemar.only_first:,}",
        "only this one right": lambda each: f"{each.mcnemar.only_second:,}",
        "McNemar p": lambda each: f"{show_p(each.mcnemar.p)} ({'exact' if each.mcnemar.exact else 'chi-square'})",
        "p, after Holm": lambda each: show_p(each.p) if len(comparison.pairs) > 1 else _ABSENT,
        "same prediction": lambda each: f"{show_percent(each.agreement, 2)} (kappa {each.kappa:.3f})",
    }
    made = [(title, [make(each) for each in comparison.pairs]) for title, make in rows.items()]
    return [(title, cells) for title, cells in made if set(cells) != {_ABSENT}]


def show(comparison: Comparison, console: Console) -> None:
    """Prints the tables, and under them what they say.

    Args:
        console: Where to.
    """
    names = [one_line(each.name) for each in comparison.results]
    _print(console, f"{comparison.examples:,} examples of {comparison.split}", names, result_rows(comparison))
    if comparison.pairs:
        _print(console, f"against {names[0]}", names[1:], pair_rows(comparison))
    console.print()
    for line in comparison.conclusions():
        console.print(one_line(line), style="bold")
    for name, why in comparison.failures.items():
        console.print(f"{one_line(name)}: failed: {why}", style="red")
    for note in comparison.notes:
        console.print(one_line(note), style="yellow")


def show_share(found: Interval) -> str:
    """Returns a share of 1 with its interval, in percent."""
    return f"{100 * found.value:.2f} % ({100 * found.low:.2f} to {100 * found.high:.2f})"


def show_points(found: Interval) -> str:
    """Returns a difference of shares with its interval, in points of 100."""
    return f"{100 * found.value:+.2f} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def show_value(found: Interval, signed: bool = False) -> str:
    """Returns a number with its interval."""
    sign = "+" if signed else ""
    return f"{found.value:{sign}.4f} ({found.low:{sign}.4f} to {found.high:{sign}.4f})"


def _print(console: Console, title: str, names: list[str], rows: list[tuple[str, list[str]]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for name in names:
        table.add_column(name, justify="right")
    for key, cells in rows:
        table.add_row(key, *cells)
    console.print()
    console.print(table)


def _metric(result: Result, name: str) -> str:
    return show_metric(result.metrics[name]) if name in result.metrics else _ABSENT


def _number(facts: Mapping[str, float], name: str) -> str:
    return _shown(facts, name, show_number)


def _shown(facts: Mapping[str, float], name: str, show: Callable[[float], str]) -> str:
    return show(facts[name]) if name in facts else _ABSENT
