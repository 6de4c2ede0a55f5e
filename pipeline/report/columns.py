"""The columns of a table, for a run's report: type, missing cells and distribution, by the run's own statistics."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.dsl.io import fileio

from tfx_estimator.pipeline.report.artifacts import EXAMPLE_GEN, Outputs, statistics_of
from tfx_estimator.pipeline.report.page import LeftOutError, Missing, show_number, show_percent

# Columns on a page, the most frequent words of each, and the longest of these.
_COLUMNS, _WORDS, _LONGEST = 200, 3, 30
_KINDS = {
    statistics_pb2.FeatureNameStatistics.INT: "whole number",
    statistics_pb2.FeatureNameStatistics.FLOAT: "number",
    statistics_pb2.FeatureNameStatistics.STRING: "words",
}


@dataclass(frozen=True)
class Distribution:
    """A column in one split.

    Args:
        missing: Share of the rows without a value.
        text: The numbers' mean and range, or the most frequent words.
        bars: The heights of a histogram, by the highest: ten equal ranges of a number, or the most frequent words.
        titles: What each bar counts.
    """

    missing: float
    text: str = ""
    bars: list[float] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ColumnsPart:
    """The columns of a table.

    Args:
        rows: Number of rows by split.
        columns: `name`, `kind`, and `splits`: the Distribution by split.
        left_out: The number of further columns.
        days: The number of days with statistics; these are of the newest one.
    """

    rows: dict[str, int]
    columns: list[dict[str, Any]]
    left_out: int
    days: int = 1


def is_of_table(outputs: Outputs | Missing) -> bool:
    """Returns whether a run described rows of a table."""
    return (
        not isinstance(outputs, Missing) and statistics_of(outputs) != [] and (EXAMPLE_GEN, "examples") not in outputs
    )


def describe_columns(outputs: Outputs) -> ColumnsPart:
    """Describes the columns by the statistics of each split; of days, by those of the newest one."""
    days = statistics_of(outputs, len(outputs))
    statistics = days[-1]
    found: dict[str, statistics_pb2.DatasetFeatureStatistics] = {}
    for split in statistics.read_json("split_names") or ():
        path = os.path.join(statistics.uri, f"Split-{split}", "FeatureStats.pb")
        if not fileio.exists(path):
            raise LeftOutError(f"There is no {path}.")
        with fileio.open(path, "rb") as file:
            (found[split],) = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()).datasets
    columns: dict[str, dict[str, Any]] = {}
    for split, dataset in found.items():
        for feature in dataset.features:
            name = ".".join(feature.path.step) or feature.name
            column = columns.setdefault(name, {"name": name, "kind": _KINDS.get(feature.type, ""), "splits": {}})
            column["splits"][split] = _distribution(feature, dataset.num_examples)
    ordered = sorted(columns.values(), key=lambda column: column["name"])
    for column in ordered:
        column["splits"] = {split: column["splits"].get(split, Distribution(1.0)) for split in found}
    rows = {split: int(dataset.num_examples) for split, dataset in found.items()}
    return ColumnsPart(rows, ordered[:_COLUMNS], max(len(ordered) - _COLUMNS, 0), len(days))


def _distribution(feature: statistics_pb2.FeatureNameStatistics, rows: int) -> Distribution:
    stats = getattr(feature, feature.WhichOneof("stats"))
    # An empty cell of a CSV file is a feature with an empty list, which counts as not missing.
    filled = min(stats.common_stats.num_non_missing, stats.common_stats.tot_num_values)
    missing = 1 - filled / rows if rows else 0.0
    if not filled:
        return Distribution(missing)
    buckets: list[Any] = []
    if feature.WhichOneof("stats") == "num_stats":
        low, high = stats.min, stats.max
        text = f"{show_number(stats.mean)} ± {show_number(stats.std_dev)}, {show_number(low)} to {show_number(high)}"
        kind = statistics_pb2.Histogram.STANDARD
        buckets = next((list(each.buckets) for each in stats.histograms if each.type == kind), [])
        ends = [f"{show_number(each.low_value)} to {show_number(each.high_value)}" for each in buckets]
    elif feature.WhichOneof("stats") == "string_stats":
        buckets = list(stats.rank_histogram.buckets)[: 2 * _WORDS]
        ends = [_shortened(each.label) for each in buckets]
        most = [f"{name} {show_percent(each.sample_count / filled)}" for name, each in zip(ends, buckets[:_WORDS])]
        text = f"{stats.unique:,} different: {', '.join(most)}"
    else:
        return Distribution(missing)
    highest = max((each.sample_count for each in buckets), default=0) or 1
    titles = [f"{end}: {show_percent(each.sample_count / filled)}" for end, each in zip(ends, buckets)]
    return Distribution(missing, text, [round(each.sample_count / highest, 3) for each in buckets], titles)


def _shortened(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"
