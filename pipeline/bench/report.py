"""Shows a comparison of strategies: as a table on the terminal, and as one HTML file that needs no other."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tfx_estimator.pipeline.bench.results import Comparison, Result

_INPUT = (
    "share of the time, without what other processes took of the cores, that goes when every batch is the same one in"
    " memory. Where a process has one core (one_core, and each worker of a cluster), training and input take turns on"
    " it, and this is all that the input costs; where it has more, this is what of that cost is not hidden behind"
    " training."
)
_CORRECTED = "without what other processes took of the cores"
# Title, and what it means.
_COLUMNS = (
    ("strategy", "process or processes, and the number of devices or workers"),
    ("cores", "logical CPUs that the tasks ran on"),
    (
        "examples/s",
        "those of one core, in the median over the rounds, times the speedup; and how far the rounds lie apart. By this"
        " number, and the line below, one strategy is the fastest",
    ),
    ("CPU µs/example", "user and system time of all tasks together"),
    (
        "speedup",
        "examples/s, divided by those of one core. Where other processes took some of the cores, the first number is"
        " without that, and is marked by *; the second is as measured",
    ),
    ("efficiency", "speedup, divided by the number of cores; marked by * as that is"),
    ("peak memory", "sum over the tasks of the largest resident memory"),
    ("shared once", "sum over the tasks at the end, what they share counted once"),
    ("input", _INPUT),
)
_MEGABYTE = 1 << 20

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }}
table {{ border-collapse: collapse; margin: 1.5em 0; }}
th, td {{ padding: .35em .9em; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
img {{ max-width: 100%; }}
dt {{ font-weight: 600; }} dd {{ margin: 0 0 .4em 0; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{facts}</p>
<table>
{rows}
</table>
<p><strong>{answer}</strong></p>
{notes}
<img alt="Bars of examples per second, CPU per example and memory by strategy" src="data:image/png;base64,{plot}">
<dl>
{columns}
</dl>
</body>
</html>
"""


def show(comparison: Comparison, console: Console) -> None:
    """Prints the table, and under it which strategy pays.

    Args:
        console: Where to.
    """
    table = Table(box=None, pad_edge=False)
    for title, _ in _COLUMNS:
        table.add_column(title, justify="left" if title == "strategy" else "right")
    for result in comparison.results():
        table.add_row(*_cells(result))
    for strategy, state in _not_measured(comparison).items():
        table.add_row(strategy, "", state)
    console.print()
    console.print(table)
    console.print()
    console.print(comparison.answer(), style="bold")
    if any(result.is_corrected for result in comparison.results()):
        console.print(f"* {_CORRECTED}", style="dim")
    if any(result.input_share is not None for result in comparison.results()):
        console.print(f"input: {_INPUT}", style="dim")
    for doubt in comparison.doubts():
        console.print(doubt, style="yellow")
    for strategy, reason in comparison.refused.items():
        console.print(f"refused: {strategy}: {reason}", style="dim", markup=False, highlight=False)


def to_html(comparison: Comparison, plot: bytes) -> str:
    """Writes the table, the answer and the plot into one page.

    Returns:
        HTML that refers to nothing outside of it.
    """
    facts = comparison.facts
    rows = [_row("th", [title for title, _ in _COLUMNS])]
    rows += [_row("td", _cells(result)) for result in comparison.results()]
    rows += [_row("td", [strategy, "", state]) for strategy, state in _not_measured(comparison).items()]
    refused = [f"{strategy}: {reason}" for strategy, reason in comparison.refused.items()]
    notes = [*comparison.doubts(), *comparison.failures.values(), *refused]
    described = [f"<dt>{html.escape(title)}</dt><dd>{html.escape(meaning)}</dd>" for title, meaning in _COLUMNS]
    return _PAGE.format(
        title=html.escape(f"Strategies of {facts['name']}"),
        facts=html.escape(
            f"{facts['model']}, steps of {_sizes(comparison.results())} examples; {facts['steps']:,} steps after"
            f" {facts['warmup']:,} to warm up, in {facts['rounds']} rounds; {facts['when']}, {facts['machine']['cpu']},"
            f" {facts['machine']['cores']} cores"
        ),
        rows="\n".join(rows),
        answer=html.escape(comparison.answer()),
        notes="\n".join(f"<p>{html.escape(note)}</p>" for note in notes),
        plot=base64.b64encode(plot).decode("ascii"),
        columns="\n".join(described),
    )


def _not_measured(comparison: Comparison) -> dict[str, str]:
    """What became of the strategies that there is no result of."""
    return {**dict.fromkeys(comparison.failures, "failed"), **dict.fromkeys(comparison.refused, "refused")}


def _sizes(results: Sequence[Result]) -> str:
    """Examples of a step, one number if the strategies agree."""
    sizes = [result.examples_per_step for result in results]
    return " to ".join(dict.fromkeys(f"{size:,.0f}" for size in (min(sizes), max(sizes))))


def _cells(result: Result) -> list[str]:
    """One row of the table."""
    spread = (max(result.rates) - min(result.rates)) / 2 / result.examples_per_second
    rate = f"{result.examples_per_second:,.0f}" + (f" ± {spread:.0%}" if spread else "")
    rate += f"* ({result.measured_examples_per_second:,.0f} measured)" if result.is_corrected else ""
    share = result.input_share
    return [
        result.strategy,
        str(result.cores),
        rate,
        f"{result.cpu_micros_per_example:,.1f}",
        f"{result.speedup:.2f}" + (f"* ({result.measured_speedup:.2f} measured)" if result.is_corrected else ""),
        f"{result.efficiency:.2f}" + ("*" if result.is_corrected else ""),
        f"{result.peak_rss / _MEGABYTE:,.0f} MB",
        f"{result.pss / _MEGABYTE:,.0f} MB",
        "" if share is None else f"{max(share, 0):.0%}" + ("*" if result.is_corrected else ""),
    ]


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
