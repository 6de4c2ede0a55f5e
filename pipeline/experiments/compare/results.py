"""What a comparison found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tfx_estimator.pipeline.base.files import finite
from tfx_estimator.pipeline.experiments.compare.statistics import (
    Interval,
    McNemar,
    holm,
    kappa,
    mcnemar,
    mean,
    paired_difference,
    wilson,
)
from tfx_estimator.pipeline.report.evaluation import calibrate

_LEVEL = 0.05
# The test knows the chance of the examples alone.
_UNKNOWN = "How far apart trainings with other seeds lie was not measured: another seed may turn it round."
# Facts of a model run that are shown, in this order.
_FACTS = (
    "first_step",
    "last_step",
    "exported_step",
    "train_seconds",
    "examples_per_second",
    "steady_examples_per_second",
    "steady_seconds",
    "cpu_micros_per_example",
    "peak_rss",
    "restarts",
)


@dataclass(frozen=True)
class Result:
    """What one candidate came to."""

    name: str
    source: str  # a preset, a file or a folder
    accuracy: Interval  # 0 to 1
    loss: Interval
    ece: float  # expected calibration error
    output: str  # the served output that was read
    model_bytes: int  # of the SavedModel's files
    parameters: int  # numbers in its variables
    # Facts of the training, as far as they are known: steps, seconds, examples/s, CPU, memory.
    training: Mapping[str, float] = field(default_factory=dict)
    cached: bool = False  # was it trained before
    metrics: Mapping[str, float] = field(default_factory=dict)  # declared ones, by the names that people read


@dataclass(frozen=True)
class ClassDifference:
    """How often a class is recognised by both of a pair."""

    label: str
    count: int
    base: float  # recall of the first candidate
    other: float
    difference: Interval  # by how much the other's is higher


@dataclass(frozen=True)
class Pair:
    """A candidate beside the first one, the base."""

    name: str
    accuracy: Interval  # by how much it is higher than the base's
    loss: Interval  # the same, of the same examples
    mcnemar: McNemar  # whether both are right equally often; the first of the test is the base
    p: float  # of that test, corrected for the number of candidates as Holm does
    agreement: float  # share of the examples that both take for the same class
    kappa: float
    both_right: int
    both_wrong: int
    classes: list[ClassDifference]  # those that have examples


@dataclass(frozen=True)
class Comparison:
    """What a comparison found."""

    results: Sequence[Result]  # of each candidate; the first is the base
    pairs: Sequence[Pair]  # each other one beside it
    examples: int  # how many were predicted
    split: str
    facts: Mapping[str, Any]  # when, on which machine, which data
    failures: Mapping[str, str]  # why a candidate has no result, by its name
    notes: Sequence[str]  # what the reader must know; a sentence each

    @property
    def base(self) -> Result:
        """What the others are compared with."""
        return self.results[0]

    @property
    def spread(self) -> float:
        """Between the highest and the lowest accuracy, in points of 100."""
        found = [each.accuracy.value for each in self.results]
        return 100 * (max(found) - min(found))

    def conclusions(self) -> list[str]:
        """Returns a sentence for each pair, and what none of them knows."""
        said = [_conclude(self.base, pair, len(self.pairs)) for pair in self.pairs]
        return [*said, _UNKNOWN] if any(pair.p < _LEVEL for pair in self.pairs) else said

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold; what is no finite number, as the interval of one example's loss, is null."""
        told = {
            **self.facts,
            "examples": self.examples,
            "split": self.split,
            "base": self.base.name,
            "spread_points": self.spread,
            "conclusions": self.conclusions(),
            "notes": list(self.notes),
            "candidates": {each.name: asdict(each) for each in self.results},
            "pairs": {
                each.name: {**asdict(each), "mcnemar": {**asdict(each.mcnemar), "exact": each.mcnemar.exact}}
                for each in self.pairs
            },
            "failures": dict(self.failures),
        }
        return finite(told)


def facts_of(properties: Mapping[str, Any]) -> dict[str, float]:
    """Returns the facts of a training among the properties of its model run."""
    return {name: float(properties[name]) for name in _FACTS if isinstance(properties.get(name), (int, float))}


def score(labels: np.ndarray, probabilities: np.ndarray, lost: np.ndarray) -> tuple[Interval, Interval, float]:
    """Returns accuracy, loss and expected calibration error of one candidate.

    Args:
        labels: The true classes; int64 [examples].
        probabilities: float32 [examples, classes].
        lost: Cross-entropy of each; float64 [examples].
    """
    right = int((probabilities.argmax(axis=1) == labels).sum())
    return wilson(right, len(labels)), mean(lost), calibrate(labels, probabilities).ece


def pair_up(
    names: Sequence[str],
    labels: np.ndarray,
    predicted: Sequence[np.ndarray],
    lost: Sequence[np.ndarray],
    classes: Sequence[str],
) -> list[Pair]:
    """Puts each candidate but the first beside that.

    Args:
        labels: The true classes; int64 [examples].
        predicted: Of each candidate the predicted classes; int64 [examples].
        lost: Of each candidate the cross-entropy; float64 [examples].
    """
    right = [each == labels for each in predicted]
    tests = [mcnemar(_count(right[0] & ~each), _count(each & ~right[0])) for each in right[1:]]
    corrected = holm([test.p for test in tests])
    return [
        Pair(
            name=name,
            accuracy=paired_difference(test.only_first, test.only_second, len(labels)),
            loss=mean(lost[index] - lost[0]),
            mcnemar=test,
            p=p,
            agreement=float((predicted[0] == predicted[index]).mean()),
            kappa=kappa(predicted[0], predicted[index]),
            both_right=_count(right[0] & right[index]),
            both_wrong=_count(~right[0] & ~right[index]),
            classes=_by_class(labels, right[0], right[index], classes),
        )
        for index, (name, test, p) in enumerate(zip(names[1:], tests, corrected), 1)
    ]


def _by_class(labels: np.ndarray, base: np.ndarray, other: np.ndarray, names: Sequence[str]) -> list[ClassDifference]:
    found = []
    for label, name in enumerate(names):
        chosen = labels == label
        if count := _count(chosen):
            only_base, only_other = _count(chosen & base & ~other), _count(chosen & other & ~base)
            difference = paired_difference(only_base, only_other, count)
            shares = _count(chosen & base) / count, _count(chosen & other) / count
            found.append(ClassDifference(name, count, *shares, difference))
    return found


def _conclude(base: Result, pair: Pair, tests: int) -> str:
    gained, loss = pair.accuracy, pair.loss
    corrected = f", corrected for {tests} tests" if tests > 1 else ""
    test = f"McNemar p = {show_p(pair.p)}{corrected}"
    interval = f"{100 * gained.low:+.2f} to {100 * gained.high:+.2f}"
    if pair.agreement == 1:
        return f"{pair.name} takes every example for the same class as {base.name}; mean loss {loss.value:+.1e}."
    lost = "lower" if loss.high < 0 else "higher" if loss.low > 0 else "not told apart"
    rest = f"{test}, 95 % interval {interval} points; loss {lost} ({loss.value:+.4f})."
    if pair.p >= _LEVEL:
        return f"{pair.name} is not told apart from {base.name} ({100 * gained.value:+.2f} points): {rest}"
    how = f"{abs(100 * gained.value):.2f} points {'better' if gained.value > 0 else 'worse'}"
    return f"Of these two models, that of {pair.name} is {how} than that of {base.name}: {rest}"


def show_p(p: float) -> str:
    """Returns a p-value as it is read: two digits, the smallest as such."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def _count(chosen: np.ndarray) -> int:
    return int(np.count_nonzero(chosen))
