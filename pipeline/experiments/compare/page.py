"""Shows a comparison as tables on the terminal, and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from rich.console import Console

from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.experiments.compare.numbers import number_facts, pair_facts
from tfx_estimator.pipeline.experiments.compare.results import ClassDifference, Comparison, Pair, Result, show_p
from tfx_estimator.pipeline.experiments.compare.statistics import Interval
from tfx_estimator.pipeline.experiments.side_by_side import (
    MEGABYTE,
    Row,
    fact_rows,
    print_rows,
    render_side_by_side,
    show_fact,
)
from tfx_estimator.pipeline.report.metrics import show_metric
from tfx_estimator.pipeline.report.page import Missing, show_number, show_percent, show_seconds
from tfx_estimator.pipeline.report.training import Training

if TYPE_CHECKING:  # these import TensorFlow
    from tfx_estimator.pipeline.experiments.compare.answers import Answers
    from tfx_estimator.pipeline.report.examples import DataSet

_MOST_DISAGREED = 20


def result_rows(comparison: Comparison) -> list[Row]:
    """Returns rows with the results of each candidate."""

    def metric(name: str) -> Callable[[Result], Optional[str]]:
        return lambda each: show_fact(each.metrics, name, show_metric)

    def of_training(name: str, show: Callable[[float], str] = show_number) -> Callable[[Result], Optional[str]]:
        return lambda each: show_fact(each.training, name, show)

    of_classes: dict[str, Callable[[Result], Optional[str]]] = {
        "accuracy": lambda each: _show_interval(each.accuracy, "{:.2f}", 100, " %"),
        "mean loss": lambda each: _show_interval(each.loss, "{:.4f}"),
    }
    if comparison.is_regression:
        scores = number_facts(comparison.results)
    else:
        scores = {**of_classes, **_seed_facts(comparison.results)}
        scores["calibration error"] = lambda each: show_percent(each.ece, 2)
    facts: dict[str, Callable[[Result], Optional[str]]] = {
        **scores,
        **{name: metric(name) for each in comparison.results for name in each.metrics},
        "steps": of_training("last_step"),
        "exported step": of_training("exported_step"),
        "training": of_training("train_seconds", show_seconds),
        "examples/s": of_training("steady_examples_per_second"),
        "CPU µs/example": of_training("cpu_micros_per_example"),
        "peak memory": of_training("peak_rss", lambda size: f"{size / MEGABYTE:,.0f} MB"),
        "restarts": of_training("restarts"),
        "model": lambda each: f"{each.model_bytes / MEGABYTE:,.2f} MB",
        "parameters": lambda each: f"{each.parameters:,}",
    }
    return fact_rows(facts, comparison.results)


def _seed_facts(results: Sequence[Result]) -> dict[str, Callable[[Result], Optional[str]]]:
    """Returns the results of each training, and their spread, if there are several seeds."""
    count = max(len(each.replicates) for each in results)

    def seed(number: int) -> Callable[[Result], Optional[str]]:
        def show_seed(each: Result) -> Optional[str]:
            one = each.replicates[number]
            return f"{100 * one.accuracy:.2f} %, {one.loss:.4f} (seed {one.seed})"

        return show_seed

    facts: dict[str, Callable[[Result], Optional[str]]] = {
        f"training {number + 1}": seed(number) for number in range(count)
    }
    if count:
        facts["spread of accuracy"] = lambda each: f"{100 * each.spread('accuracy'):.2f} points"
        facts["spread of mean loss"] = lambda each: f"{each.spread('loss'):.4f}"
    return facts


def pair_rows(comparison: Comparison) -> list[Row]:
    """Returns rows with the differences of each candidate from the first."""
    if comparison.is_regression:
        return fact_rows(pair_facts(), comparison.pairs)
    facts: dict[str, Callable[[Pair], Optional[str]]] = {
        "accuracy, points": lambda each: _show_points(each.accuracy),
        "mean loss, higher by": lambda each: _show_interval(each.loss, "{:+.4f}"),
        "only the first right": lambda each: f"{each.mcnemar.only_first:,}" if each.mcnemar else None,
        "only this one right": lambda each: f"{each.mcnemar.only_second:,}" if each.mcnemar else None,
        "McNemar p": lambda each: (
            f"{show_p(each.mcnemar.p)} ({'exact' if each.mcnemar.exact else 'chi-square'})" if each.mcnemar else None
        ),
        "p of accuracies": lambda each: show_p(each.seeds.accuracy_p) if each.seeds else None,
        "p of mean losses": lambda each: show_p(each.seeds.loss_p) if each.seeds else None,
        "p, after Holm": lambda each: show_p(each.p) if each.mcnemar and len(comparison.pairs) > 1 else None,
        "p, after Holm: accuracies": lambda each: show_p(each.p) if each.seeds else None,
        "p, after Holm: mean losses": lambda each: show_p(each.seeds.corrected_loss_p) if each.seeds else None,
        "same prediction": lambda each: f"{show_percent(each.agreement, 2)} (kappa {each.kappa:.3f})",
    }
    return fact_rows(facts, comparison.pairs)


def show(comparison: Comparison, console: Console) -> None:
    """Prints the tables and the conclusions."""
    names = [one_line(each.name) for each in comparison.results]
    print_rows(console, [f"{comparison.examples:,} examples of {comparison.split}", *names], result_rows(comparison))
    if comparison.pairs:
        print_rows(console, [f"against {names[0]}", *names[1:]], pair_rows(comparison))
    console.print()
    for line in comparison.conclusions():
        console.print(one_line(line), style="bold")
    for name, why in comparison.failures.items():
        console.print(f"{one_line(name)}: failed: {printable(why)}", style="red")
    for note in comparison.notes:
        console.print(one_line(note), style="yellow")


@dataclass(frozen=True)
class Disagreement:
    """An example for which the candidates predict different classes, or numbers."""

    position: int  # in the split, in the order of the first candidate's files
    shown: Any  # see `DataSet.show`
    truth: str
    predicted: list[tuple[str, Optional[float]]]  # class and its probability, by each candidate; or number and None


def to_html(
    comparison: Comparison,
    trainings: Mapping[str, Training | Missing],
    values: Sequence[Mapping[str, Any]],
    disagreements: Sequence[Disagreement] | Missing,
) -> str:
    """Renders the page.

    Args:
        trainings: The curves of each candidate.
        values: Declared values of each candidate, by dotted path.
    """
    return render_side_by_side(
        "compare.html.j2",
        trainings,
        values,
        comparison=comparison,
        results=result_rows(comparison),
        pairs=pair_rows(comparison),
        classes=_class_rows(comparison),
        disagreements=disagreements,
    )


def find_disagreements(data: DataSet, split: str, answers: Sequence[Answers]) -> list[Disagreement]:
    """Finds the examples with different predictions whose probabilities differ most, in descending order."""
    predicted = [each.predicted for each in answers]
    base = answers[0].probabilities
    # Total variation distance; of numbers half of their distance.
    apart = np.max([np.abs(each.probabilities - base).sum(axis=1) / 2 for each in answers[1:]], axis=0)
    differ = np.flatnonzero(np.any([each != predicted[0] for each in predicted[1:]], axis=0))
    chosen = differ[np.argsort(-apart[differ], kind="stable")][:_MOST_DISAGREED]
    if not len(chosen):
        return []
    contents = _contents(data, split, {int(position) for position in chosen})
    return [
        Disagreement(
            int(position),
            data.show(contents[int(position)]),
            data.name_of(answers[0].labels[position]),
            [
                (
                    data.name_of(each.predicted[position]),
                    None if data.is_regression else float(each.probabilities[position].max()),
                )
                for each in answers
            ],
        )
        for position in chosen
    ]


def _contents(data: DataSet, split: str, positions: set[int]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    seen = 0
    for _, raw, labels in data.batches(split, max(positions) + 1):
        found.update({index: raw[index - seen] for index in positions if 0 <= index - seen < len(raw)})
        seen += len(labels)
    return found


def _class_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Returns, by class, `label`, `count`, the first candidate's recall, and the others' recalls and differences."""
    if not comparison.pairs:
        return []
    return [
        {
            "label": first.label,
            "count": first.count,
            "base": first.base,
            "others": [
                (pair.classes[index].other, _show_points(pair.classes[index].difference), _sign(pair.classes[index]))
                for pair in comparison.pairs
            ],
        }
        for index, first in enumerate(comparison.pairs[0].classes)
    ]


def _sign(found: ClassDifference) -> str:
    """Returns `better` or `worse` if 0 is not in the interval."""
    if found.difference.holds(0):
        return ""
    return "better" if found.difference.value > 0 else "worse"


def _show_points(found: Interval) -> str:
    """Formats a difference of shares, in percentage points."""
    return _show_interval(found, "{:+.2f}", 100)


def _show_interval(found: Interval, form: str, scale: float = 1, unit: str = "") -> str:
    value, low, high = (form.format(scale * each) for each in (found.value, found.low, found.high))
    return f"{value}{unit} ({low} to {high})"
