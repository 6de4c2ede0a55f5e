"""Draws a comparison of strategies."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tfx_estimator.pipeline.bench.results import Comparison, Result

_BAR, _BEST, _DOT, _MARK = "#9db8d2", "#2f6da8", "#222222", "#b03030"
_DPI = 150


def to_png(comparison: Comparison) -> bytes:
    """Draws examples/s, CPU per example and memory, a bar for each strategy and a dot for each round."""
    results = comparison.results()
    figure = Figure(figsize=(12, 1.8 + 0.5 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    rate, cpu, memory = figure.subplots(1, 3, sharey=True)
    rounds = [comparison.real(result.strategy) for result in results]
    _bars(rate, [result.examples_per_second for result in results], max, [result.rates for result in results])
    cpus = [[each.cpu_micros_per_example for each in measured] for measured in rounds]
    _bars(cpu, [result.cpu_micros_per_example for result in results], min, cpus)
    memories = [[each.peak_rss / 2**20 for each in measured] for measured in rounds]
    _bars(memory, [result.peak_rss / 2**20 for result in results], min, memories)
    _perfect_scaling(rate, results)
    rate.set_yticks(range(len(results)), [f"{result.strategy}\n{_cores(result.cores)}" for result in results])
    rate.invert_yaxis()
    for axes, title in ((rate, "examples/s"), (cpu, "CPU µs per example"), (memory, "peak memory, MB")):
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    name, model = comparison.facts["name"], comparison.facts["model"]
    figure.suptitle(f"Strategies of {name} ({model})", x=0.01, ha="left")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _bars(
    axes: Axes, values: Sequence[float], best: Callable[[Sequence[float]], float], rounds: Sequence[Sequence[float]]
) -> None:
    """A bar for each strategy, the best one darker, and a dot for each round."""
    axes.barh(range(len(values)), values, color=[_BEST if each == best(values) else _BAR for each in values])
    for position, dots in enumerate(rounds):
        axes.plot(dots, [position] * len(dots), ".", color=_DOT, markersize=4)
        right = (max(*dots, values[position]), position)
        axes.annotate(f"{values[position]:,.0f}", right, (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.25)


def _perfect_scaling(axes: Axes, results: Sequence[Result]) -> None:
    """Marks the rate at which each core would do as much as the base's one."""
    marks = [result.examples_per_second / result.efficiency for result in results]
    axes.plot(marks, range(len(marks)), "|", color=_MARK, markersize=18)
    axes.text(1, 1.02, "|  perfect scaling", color=_MARK, ha="right", transform=axes.transAxes)


def _cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"
