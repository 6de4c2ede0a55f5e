"""The Evaluator's metrics as people read them: names, numbers, and tables of slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tfx_estimator.data.features import LABEL

# Separates the names, and the values, of crossed features.
CROSSED = " x "
_DIFF = "_diff"
_PREFIX = "sparse_categorical_"
_COUNT = "example_count"
# Largest size of a table of slices.
_MOST_ROWS, _MOST_COLUMNS = 200, 8


@dataclass(frozen=True)
class SliceTable:
    """The metrics of the slices of one feature, or of several crossed."""

    feature: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]  # value of the feature, and the metrics
    left_out: tuple[int, int]  # how many further rows and columns there are


def show_metric(value: Optional[float]) -> str:
    """Shows a metric: a count as such, all else in four digits after the point."""
    if value is None:
        return "nan"
    value = float(value)
    return f"{value:,.0f}" if value.is_integer() and abs(value) > 1 else f"{value:.4f}"


def entitle(metric: str, label_names: Sequence[str]) -> str:
    """Names a metric for people: `classId:3/precision` is `precision of three`."""
    part, _, name = metric.rpartition("/")
    kind, _, number = part.partition(":")
    if not number.isdecimal():
        return metric
    label = int(number)
    of = {"classId": f"of {label_names[label] if label < len(label_names) else label}", "topK": f"at top {number}"}
    return f"{name} {of[kind]}" if kind in of else metric


def entitle_slice(feature: str, value: str, label_names: Sequence[str]) -> str:
    """Names the value of a feature, or of several crossed; a label by its class."""
    parts = list(zip(feature.split(CROSSED), value.split(CROSSED)))
    if len(parts) != len(value.split(CROSSED)):
        return value
    return CROSSED.join(label_names[int(part)] if name == LABEL and label_names else part for name, part in parts)


def place(value: str) -> list[tuple[bool, int, str]]:
    """Sorts the values of a feature: numbers first, as numbers."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in value.split(CROSSED)]


def tell_metrics(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns what was measured beside the built-in metrics: name, value, and the difference from the baseline."""
    metrics, names = summary.get("metrics") or {}, summary.get("label_names") or ()
    return [
        (
            entitle(name, names),
            show_metric(value),
            show_metric(metrics[f"{name}{_DIFF}"]) if f"{name}{_DIFF}" in metrics else "",
        )
        for name, value in metrics.items()
        if _is_further(name, metrics)
    ]


def tell_slices(summary: Mapping[str, Any]) -> list[SliceTable]:
    """Returns a table for each feature that was sliced by."""
    names = summary.get("label_names") or ()
    tables = []
    for feature, slices in (summary.get("slice_metrics") or {}).items():
        found = dict.fromkeys(name for metrics in slices.values() for name in metrics if not _is_diff(name, metrics))
        columns = sorted(found, key=lambda name: (name != _COUNT, not name.startswith(_PREFIX), "/" in name))
        order = sorted(slices, key=place)
        shown = columns[:_MOST_COLUMNS]
        rows = [
            (entitle_slice(feature, value, names), [show_metric(slices[value].get(name)) for name in shown])
            for value in order[:_MOST_ROWS]
        ]
        left_out = (len(order) - len(rows), len(columns) - len(shown))
        tables.append(
            SliceTable(feature, [entitle(name, names).removeprefix(_PREFIX) for name in shown], rows, left_out)
        )
    return tables


def _is_diff(name: str, metrics: Mapping[str, Any]) -> bool:
    return name.endswith(_DIFF) and name.removesuffix(_DIFF) in metrics


def _is_further(name: str, metrics: Mapping[str, Any]) -> bool:
    built_in = (f"{_PREFIX}accuracy", f"{_PREFIX}crossentropy", _COUNT)
    return name not in built_in and not _is_diff(name, metrics)
