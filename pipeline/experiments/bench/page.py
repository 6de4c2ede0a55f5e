"""Shows a comparison of strategies: a table on the terminal, a plot, and a self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from tfx_estimator.pipeline.experiments.bench.results import Comparison, Result
from tfx_estimator.pipeline.experiments.side_by_side import MEGABYTE, Row, print_rows
from tfx_estimator.pipeline.report.page import render

_INPUT = (
    "share of the time, corrected for other processes, that is saved if every batch is the same one in memory. If a"
    " process has one core (one_core, and each worker of a cluster), training and input alternate on it, and this is"
    " the whole cost of the input; with more cores, it is the part of that cost that does not overlap with training."
)
_CORRECTED = "corrected for the CPU time of other processes"
# Title -> explanation.
_COLUMNS = {
    "strategy": "strategy, with the number of devices or workers",
    "cores": "logical CPUs that the tasks ran on",
    "examples/s": (
        "median rate of the base (one_core, or one_device with GPUs) over the rounds, times the speedup; ± is half the"
        " range of the rounds. The fastest strategy is chosen by this number"
    ),
    "CPU µs/example": "user and system time of all tasks together",
    "speedup": (
        "examples/s, divided by those of the base. If other processes used the cores, the first number is corrected"
        " for that and marked by *; the second is as measured"
    ),
    "efficiency": "speedup, divided by the number of cores, or of GPUs; marked by * if the speedup is",
    "peak memory": "sum over the tasks of the peak resident memory",
    "shared once": "sum over the tasks of the memory at the end, shared memory counted once",
    "input": _INPUT,
}
_BAR, _BEST, _DOT, _MARK = "#9db8d2", "#2f6da8", "#222222", "#b03030"
_DPI = 150


def rows(comparison: Comparison) -> list[Row]:
    """Returns a row for each strategy: its results, or why it has none."""
    measured = [_row(result) for result in comparison.results()]
    return [*measured, *((name, ["", state]) for name, state in comparison.not_measured.items())]


def show(comparison: Comparison, console: Console) -> None:
    """Prints the table, the answer and the doubts."""
    results = comparison.results()
    print_rows(console, list(_COLUMNS), rows(comparison))
    console.print()
    console.print(comparison.answer(), style="bold")
    if any(result.is_corrected for result in results):
        console.print(f"* {_CORRECTED}", style="dim")
    if any(result.input_share is not None for result in results):
        console.print(f"input: {_INPUT}", style="dim")
    for doubt in comparison.doubts():
        console.print(doubt, style="yellow")
    for strategy, reason in comparison.refused.items():
        console.print(f"refused: {strategy}: {reason}", style="dim")


def to_html(comparison: Comparison, plot: bytes) -> str:
    """Renders the table, the answer and the plot as one page."""
    facts, machine = comparison.facts, comparison.facts["machine"]
    sizes = [result.examples_per_step for result in comparison.results()]
    step = " to ".join(dict.fromkeys(f"{size:,.0f}" for size in (min(sizes), max(sizes))))
    refused = [f"{strategy}: {reason}" for strategy, reason in comparison.refused.items()]
    return render(
        "bench.html.j2",
        title=f"Strategies of {facts['name']}",
        under=f"{facts['model']}, steps of {step} examples; {facts['steps']:,} steps after {facts['warmup']:,} warm-up"
        f" steps, in {facts['rounds']} rounds; {facts['when']}, {machine['cpu']}, {machine['cores']} cores",
        answer=comparison.answer(),
        columns=_COLUMNS,
        rows=rows(comparison),
        notes=[*comparison.doubts(), *comparison.failures.values(), *refused],
        plot=base64.b64encode(plot).decode("ascii"),
    )


def to_png(comparison: Comparison) -> bytes:
    """Draws examples/s, CPU per example and memory, with a bar for each strategy and a dot for each round."""
    results = comparison.results()
    rounds = [comparison.real(result.strategy) for result in results]
    figure = Figure(figsize=(12, 1.8 + 0.5 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    rate, cpu, memory = figure.subplots(1, 3, sharey=True)
    _bars(rate, "examples/s", [result.examples_per_second for result in results], max, [each.rates for each in results])
    cpus = [[each.cpu_micros_per_example for each in measured] for measured in rounds]
    _bars(cpu, "CPU µs per example", [result.cpu_micros_per_example for result in results], min, cpus)
    memories = [[each.peak_rss / MEGABYTE for each in measured] for measured in rounds]
    _bars(memory, "peak memory, MB", [result.peak_rss / MEGABYTE for result in results], min, memories)
    # The rate with an efficiency of 1.
    marks = [result.examples_per_second / result.efficiency for result in results]
    rate.plot(marks, range(len(marks)), "|", color=_MARK, markersize=18)
    rate.text(1, 1.02, "|  perfect scaling", color=_MARK, ha="right", transform=rate.transAxes)
    cores = [f"{result.cores} core{'' if result.cores == 1 else 's'}" for result in results]
    rate.set_yticks(range(len(results)), [f"{result.strategy}\n{count}" for result, count in zip(results, cores)])
    rate.invert_yaxis()
    figure.suptitle(f"Strategies of {comparison.facts['name']} ({comparison.facts['model']})", x=0.01, ha="left")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _bars(
    axes: Axes,
    title: str,
    values: Sequence[float],
    best: Callable[[Sequence[float]], float],
    rounds: Sequence[Sequence[float]],
) -> None:
    """Draws a bar for each strategy, the best one darker, and a dot for each round."""
    axes.barh(range(len(values)), values, color=[_BEST if each == best(values) else _BAR for each in values])
    for position, dots in enumerate(rounds):
        axes.plot(dots, [position] * len(dots), ".", color=_DOT, markersize=4)
        right = (max(*dots, values[position]), position)
        axes.annotate(f"{values[position]:,.0f}", right, (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.25)
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _row(result: Result) -> Row:
    spread = (max(result.rates) - min(result.rates)) / 2 / result.examples_per_second
    mark = "*" if result.is_corrected else ""
    rate, speedup = result.measured_examples_per_second, result.measured_speedup
    share = result.input_share
    cells = [
        str(result.cores),
        f"{result.examples_per_second:,.0f}"
        + (f" ± {spread:.0%}" if spread else "")
        + (f"* ({rate:,.0f} measured)" if mark else ""),
        f"{result.cpu_micros_per_example:,.1f}",
        f"{result.speedup:.2f}" + (f"* ({speedup:.2f} measured)" if mark else ""),
        f"{result.efficiency:.2f}{mark}",
        f"{result.peak_rss / MEGABYTE:,.0f} MB",
        f"{result.pss / MEGABYTE:,.0f} MB",
        "" if share is None else f"{max(share, 0):.0%}{mark}",
    ]
    return result.strategy, cells
