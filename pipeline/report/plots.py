"""Draws a report's charts as SVG with the colours and font of the page, light or dark."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

if TYPE_CHECKING:  # these import TensorFlow
    from tfx_estimator.pipeline.report.evaluation import Calibration
    from tfx_estimator.pipeline.report.examples import Pixels
    from tfx_estimator.pipeline.report.training import Series

COLOURS = 8
# Number formats of an axis, and a legend above it.
_COUNTS, _SHORT = "{x:,.0f}", "{x:g}"
_LEGEND: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
# Placeholders that `_themed` replaces by the page's colours.
_INK, _FAINT = "#010101", "#020202"
_SERIES = [f"#0303{number:02x}" for number in range(1, COLOURS + 1)]
# Inches of 72 units: 400 units wide, so that text of size 11 is readable on a phone.
_WIDTH, _HEIGHT = 5.5, 3.1
# A bin with fewer examples has an unreliable accuracy.
_FEW = 20
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tfx-estimator",
    "font.size": 11,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.titlesize": 11,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "legend.frameon": False,
}


def draw_curves(curves: Mapping[str, Series], runs: Sequence[str] = ()) -> str:
    """Draws the curves of one metric over the global step.

    Args:
        curves: By the task or evaluation that measured them; those of several runs by `run: name`.
        runs: The runs if there are several: one colour each, evaluations dashed, and the legend only in the page;
            otherwise each curve has its colour.
    """

    def draw(axes: Axes) -> None:
        values = [value for series in curves.values() for value in series.values]
        lowest, highest = min(values), max(values)
        if log := lowest > 0 and highest / lowest > 100:
            axes.set_yscale("log")
        for number, (name, series) in enumerate(curves.items()):
            run, _, who = name.rpartition(": ")
            colour = _SERIES[(runs.index(run) if runs else number) % COLOURS]
            line = "-" if not runs or who == "train" else "--"
            # A curve of few points has markers.
            mark = "o" if len(series.steps) <= 30 else ""
            axes.plot(series.steps, series.values, line, marker=mark, markersize=3.5, color=colour, label=name)
        if log:
            _label(axes.yaxis)
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter(_COUNTS)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if len(curves) > 1 and not runs:
            axes.legend(ncols=min(len(curves), 4), handlelength=1.6, **_LEGEND)

    return _figure(draw, _HEIGHT)


def draw_trials(values: Sequence[float], scores: Sequence[float], label: str, log: bool = False, best: str = "") -> str:
    """Draws the scores of trials.

    Args:
        values: The number of each trial, or a value that it was trained with.
        best: `max` or `min` also draws the best score so far; the values must be in order.
    """

    def draw(axes: Axes) -> None:
        axes.scatter(values, scores, s=30, color=_SERIES[0], zorder=3)
        if best:
            so_far = list(itertools.accumulate(scores, max if best == "max" else min))
            axes.step(values, so_far, where="post", color=_SERIES[1], linewidth=1.6, label="best so far")
            axes.legend(**_LEGEND)
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        if log:
            axes.set_xscale("log")
            _label(axes.xaxis)
        axes.set_xlabel(label)

    return _figure(draw, 2.4)


def draw_progress(
    progress: Sequence[tuple[float, int]], starts: Sequence[tuple[float, int]], lost: Sequence[tuple[float, float]]
) -> str:
    """Draws the global step over time, with the training's starts and the time that restarts took.

    Args:
        progress: (seconds, step); likewise the starts.
        lost: (begin, end) of each period without training, in seconds.
    """
    unit, seconds = ("minutes", 60) if progress[-1][0] > 300 else ("seconds", 1)

    def draw(axes: Axes) -> None:
        for begin, end in lost:
            axes.axvspan(begin / seconds, end / seconds, color=_SERIES[1], alpha=0.25, linewidth=0)
        for time, _ in starts[1:]:
            axes.axvline(time / seconds, color=_SERIES[1], linestyle="--", linewidth=1.2)
        # A restart's first event, for its checkpoint, comes shortly before its START event.
        cuts = [-np.inf, *(begin for begin, _ in lost or [(time, 0) for time, _ in starts[1:]]), np.inf]
        for begin, end in itertools.pairwise(cuts):
            part = [(time / seconds, step) for time, step in progress if begin <= time < end]
            if part:
                axes.plot(*zip(*part), color=_SERIES[0], marker="o", markersize=2.5)
        axes.set_xlabel(f"{unit} since the training's first event")
        axes.set_ylabel("step")
        axes.yaxis.set_major_formatter(_COUNTS)

    return _figure(draw, 2.4)


def draw_reliability(calibration: Calibration) -> str:
    """Draws accuracy over confidence, and the number of examples in each bin."""

    def draw(figure: Figure) -> None:
        reliability, amounts = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        reliability.plot((0, 1), (0, 1), color=_INK, linewidth=1, linestyle=":", label="perfect")
        reliability.plot(calibration.confidence, calibration.accuracy, color=_SERIES[0], linewidth=1)
        few = calibration.counts[calibration.counts > 0] < _FEW
        for chosen, face, label in ((~few, _SERIES[0], "this model"), (few, "none", f"fewer than {_FEW} examples")):
            if chosen.any():
                x, y = calibration.confidence[chosen], calibration.accuracy[chosen]
                reliability.scatter(x, y, s=36, facecolors=face, edgecolors=_SERIES[0], label=label, zorder=3)
        reliability.set(xlim=(0, 1.02), ylim=(0, 1.03), ylabel="right")
        reliability.legend(ncols=2, columnspacing=1, **_LEGEND)
        for axes in (reliability, amounts):
            axes.xaxis.set_major_formatter(PercentFormatter(1, 0, " %"))
        reliability.yaxis.set_major_formatter(PercentFormatter(1, 0, " %"))
        bins = len(calibration.counts)
        amounts.bar((np.arange(bins) + 0.5) / bins, np.maximum(calibration.counts, 0), 0.9 / bins, color=_SERIES[0])
        amounts.set_yscale("symlog", linthresh=1)
        amounts.set(xlabel="probability of the predicted class", ylabel="examples")
        amounts.yaxis.set_major_locator(MaxNLocator(3))
        amounts.set_yticks([tick for tick in (1, 100, 10_000) if tick <= calibration.counts.max() * 3])
        amounts.yaxis.set_major_formatter(_COUNTS)
        amounts.minorticks_off()

    return _draw(draw, 4.6)


def draw_pixels(pixels: Mapping[str, Pixels]) -> str:
    """Draws the histogram of pixel values, by split."""

    def draw(axes: Axes) -> None:
        for number, (split, found) in enumerate(pixels.items()):
            share = found.histogram / max(found.histogram.sum(), 1)
            axes.stairs(share, np.arange(33) * 8, color=_SERIES[number], label=split, linewidth=1.6)
        axes.set_yscale("log")
        axes.set(xlim=(0, 256), xticks=range(0, 257, 64), xlabel="pixel value", ylabel="share of the values")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.minorticks_off()
        axes.legend(ncols=3, **_LEGEND)

    return _figure(draw, 2.4)


def draw_matrix(matrix: np.ndarray) -> str:
    """Draws a confusion matrix of many classes, as shares of each true class."""

    def draw(axes: Axes) -> None:
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        colours = np.zeros((*shares.shape, 4), np.float32)
        colours[..., :3] = (0.2, 0.5, 0.9)
        colours[..., 3] = shares**0.5  # makes a few mistakes visible next to many hits
        axes.imshow(colours, interpolation="none")
        axes.grid(False)
        axes.set(xlabel="predicted class", ylabel="true class")

    return _figure(draw, _WIDTH * 0.95)


def _label(axis: Axis) -> None:
    """Labels a logarithmic axis: 1, 10, 100; over few decades also 2 and 5."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_SHORT)


def _figure(draw: Callable[[Axes], None], height: float) -> str:
    return _draw(lambda figure: draw(figure.subplots()), height)


def _draw(draw: Callable[[Figure], None], height: float) -> str:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _themed(file.getvalue())


def _themed(svg: str) -> str:
    """Adapts an SVG file to the page: removes prolog, size and ids (not unique), and uses the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r"(font: [\d.]+px) [^;\"]*", r"\1 inherit", svg).replace(" inherit", " system-ui, sans-serif")
    svg = svg.replace(_INK, "currentColor").replace(_FAINT, "var(--line)")
    for number, colour in enumerate(_SERIES, 1):
        svg = svg.replace(colour, f"var(--series-{number})")
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
