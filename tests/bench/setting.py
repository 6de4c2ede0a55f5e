"""Shared by the benchmarks: settings, sides, and ratios of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from tests.bench.measure import Worker, median, run_worker
from tests.bench.report import Ratio


@dataclass(frozen=True)
class Setting:
    folder: str
    data_dir: Optional[str]
    rounds: int
    log: Callable[[str], None]

    def prepared(self, dataset: str = "mnist") -> dict[str, Any]:
        """Makes our tf.Examples and Transform graph of a data set, if missing."""
        self.log(f"preparing our tf.Examples and Transform graph of {dataset}")
        return run_worker("prepare", workdir=self.folder, data_dir=self.data_dir, dataset=dataset)


def in_slices(task: str, **options: Any) -> Callable[[], Worker]:
    return lambda: Worker(task, **options)


def whole(task: str, **options: Any) -> Callable[[], dict[str, Any]]:
    return lambda: run_worker(task, **options)


def micros_of(values: list[dict[str, Any]]) -> float:
    return median([{"us": value["cpu"] / value["examples"] * 1e6} for value in values], "us")


def rate_of(values: list[dict[str, Any]]) -> float:
    return median([{"rate": value["examples"] / value["wall"]} for value in values], "rate")


def less(what: str, peer: float, ours: float, target: float, unit: str = "µs") -> Ratio:
    return Ratio(what, f"{peer:.1f} {unit}", f"{ours:.1f} {unit}", peer / ours, target)


def more(what: str, peer: float, ours: float, target: float) -> Ratio:
    return Ratio(what, f"{peer:,.0f}/s", f"{ours:,.0f}/s", ours / peer, target)
