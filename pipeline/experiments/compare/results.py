"""Results of a comparison."""

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
# McNemar's test covers only the variance over examples.
_UNKNOWN = (
    "Each was trained once: the spread of one declaration's trainings over seeds is unknown, and may be as large. "
    "`compare --repeat 3` measures it."
)
# Properties of a model run that are shown, in this order.
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
class Replicate:
    """One training of a candidate that is trained under several seeds."""

    seed: int
    accuracy: float
    loss: float
    training: Mapping[str, float]  # as in a result
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Result:
    """Results of one candidate."""

    name: str
    source: str  # a preset, a file or a folder
    accuracy: Interval  # 0 to 1
    loss: Interval
    ece: float  # expected calibration error
    output: str  # name of the served output
    model_bytes: int  # of the SavedModel's files
    parameters: int  # numbers in its variables
    # Properties of the training, as far as known: steps, seconds, examples/s, CPU, memory.
    training: Mapping[str, float] = field(default_factory=dict)
    cached: bool = False  # whether it was trained before
    metrics: Mapping[str, float] = field(default_factory=dict)  # the declared ones, by display name
    # The trainings under several seeds, whose means the other fields are.
    replicates: Sequence[Replicate] = ()

    def spread(self, name: str) -> float:
        """Returns the standard deviation of `accuracy` or `loss` among the seeds."""
        return float(np.std([getattr(each, name) for each in self.replicates], ddof=1))


@dataclass(frozen=True)
class SeedTest:
    """Tests of two candidates that are trained under several seeds: see `statistics.over_seeds`."""

    accuracy_p: float
    loss_p: float
    corrected_loss_p: float  # corrected for both tests of each candidate, like the pair's p


@dataclass(frozen=True)
class ClassDifference:
    """Recall of a class by both of a pair."""

    label: str
    count: int
    base: float
    other: float
    difference: Interval  # other minus base


@dataclass(frozen=True)
class Pair:
    """Comparison of a candidate with the base."""

    name: str
    accuracy: Interval  # difference from the base's
    loss: Interval  # likewise, on the same examples
    p: float  # of the test of accuracies, with Holm's correction for the number of tests
    agreement: float  # share of the examples with the same prediction
    kappa: float
    classes: list[ClassDifference]  # those that have examples
    # For one training each; the first of the test is the base.
    mcnemar: McNemar | None = None
    both_right: int | None = None
    both_wrong: int | None = None
    seeds: SeedTest | None = None


@dataclass(frozen=True)
class Comparison:
    """Results of all candidates, and their comparisons with the base."""

    results: Sequence[Result]  # of each candidate; the first is the base
    pairs: Sequence[Pair]  # of each other candidate with the base
    examples: int  # number of predicted examples
    split: str
    facts: Mapping[str, Any]  # time, machine, data
    failures: Mapping[str, str]  # errors, by candidate
    notes: Sequence[str]  # a sentence each

    @property
    def base(self) -> Result:
        """Result of the base."""
        return self.results[0]

    @property
    def is_regression(self) -> bool:
        """True if numbers were predicted: see `numbers.NumberComparison`."""
        return False

    @property
    def spread(self) -> float:
        """Difference of the highest and the lowest accuracy, in percentage points."""
        found = [each.accuracy.value for each in self.results]
        return 100 * (max(found) - min(found))

    @property
    def apart(self) -> str:
        """The spread in words."""
        return f"the accuracies are {self.spread:.2f} points apart"

    def conclusions(self) -> list[str]:
        """Returns a sentence for each pair, and the common limit of all."""
        sentences = [self.conclude(pair) for pair in self.pairs]
        # For equal predictions the limit does not matter.
        differ = any(map(self.differs, self.pairs))
        return [*sentences, _UNKNOWN] if differ and not self.base.replicates else sentences

    def differs(self, pair: Any) -> bool:
        """Returns whether any prediction of a pair differs."""
        return pair.agreement < 1

    def conclude(self, pair: Any) -> str:
        """Returns a sentence for a pair."""
        return _conclude(self.base, pair, len(self.pairs))

    def candidate(self, result: Any) -> dict[str, Any]:
        """Returns a result for JSON."""
        return {**asdict(result), **_spreads(result)}

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison for JSON, with null for infinity and NaN, as in the interval of one example's loss."""
        fields = {
            **self.facts,
            "examples": self.examples,
            "split": self.split,
            "base": self.base.name,
            "spread_percent" if self.is_regression else "spread_points": self.spread,
            "conclusions": self.conclusions(),
            "notes": list(self.notes),
            "candidates": {each.name: self.candidate(each) for each in self.results},
            "pairs": {each.name: _pair_to_dict(each) for each in self.pairs},
            "failures": dict(self.failures),
        }
        return finite(fields)


def _spreads(result: Result) -> dict[str, float]:
    """Returns the standard deviations among the seeds, if there are several."""
    return {f"{name}_spread": result.spread(name) for name in ("accuracy", "loss") if result.replicates}


def _pair_to_dict(pair: Any) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(pair).items() if value is not None}
    test = getattr(pair, "mcnemar", None)
    return {**fields, "mcnemar": {**fields["mcnemar"], "exact": test.exact}} if test else fields


def facts_of(properties: Mapping[str, Any]) -> dict[str, float]:
    """Returns the shown properties of a model run."""
    return {name: float(properties[name]) for name in _FACTS if isinstance(properties.get(name), (int, float))}


def score(labels: np.ndarray, probabilities: np.ndarray, entropies: np.ndarray) -> tuple[Interval, Interval, float]:
    """Returns accuracy, loss and expected calibration error of one candidate.

    Args:
        labels: The true classes; int64 [examples].
        probabilities: float32 [examples, classes].
        entropies: Cross-entropy of each; float64 [examples].
    """
    right = int((probabilities.argmax(axis=1) == labels).sum())
    return wilson(right, len(labels)), mean(entropies), calibrate(labels, probabilities).ece


def pair_up(
    names: Sequence[str],
    labels: np.ndarray,
    predicted: Sequence[np.ndarray],
    entropies: Sequence[np.ndarray],
    classes: Sequence[str],
) -> list[Pair]:
    """Compares each other candidate with the first.

    Args:
        labels: The true classes; int64 [examples].
        predicted: The predicted classes of each candidate; int64 [examples].
        entropies: The cross-entropy of each candidate; float64 [examples].
    """
    right = [each == labels for each in predicted]
    tests = [mcnemar(_count(right[0] & ~each), _count(each & ~right[0])) for each in right[1:]]
    corrected = holm([test.p for test in tests])
    return [
        Pair(
            name=name,
            accuracy=paired_difference(test.only_first, test.only_second, len(labels)),
            loss=mean(entropies[index] - entropies[0]),
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
    change, loss = pair.accuracy, pair.loss
    if pair.seeds:
        return _conclude_seeds(base, pair, pair.seeds, 2 * tests)
    corrected = f", corrected for {tests} tests" if tests > 1 else ""
    test = f"McNemar p = {show_p(pair.p)}{corrected}"
    interval = f"{100 * change.low:+.2f} to {100 * change.high:+.2f}"
    if pair.agreement == 1:
        return f"{pair.name} predicts the same class as {base.name} for every example; mean loss {loss.value:+.1e}."
    direction = "lower" if loss.high < 0 else "higher" if loss.low > 0 else "not significantly different"
    rest = f"{test}, 95 % interval {interval} points; loss {direction} ({loss.value:+.4f})."
    if pair.p >= _LEVEL:
        how = f"does not differ significantly from that of {base.name} ({100 * change.value:+.2f} points)"
    else:
        how = f"is {_points(change)} than that of {base.name}"
    return f"Of these two models, on these examples, that of {pair.name} {how}: {rest}"


def _conclude_seeds(base: Result, pair: Pair, found: SeedTest, tests: int) -> str:
    change, loss = pair.accuracy, pair.loss
    times = f"trained {len(base.replicates)} times each, under different seeds"
    accuracy = f"accuracy {100 * change.value:+.2f} points ({100 * change.low:+.2f} to {100 * change.high:+.2f})"
    tests_text = (
        f"{accuracy}, p = {show_p(pair.p)}; mean loss {loss.value:+.4f} ({loss.low:+.4f} to {loss.high:+.4f}), "
        f"p = {show_p(found.corrected_loss_p)}; t-tests corrected for {tests}."
    )
    differs = []
    if pair.p < _LEVEL:
        differs.append(_points(change))
    if found.corrected_loss_p < _LEVEL:
        differs.append(f"{'lower' if loss.value < 0 else 'higher'} in mean loss")
    if differs:
        return f"{pair.name} is {' and '.join(differs)} than {base.name}, {times}: {tests_text}"
    return f"No difference found between {pair.name} and {base.name}, {times}: {tests_text}"


def _points(change: Interval) -> str:
    return f"{abs(100 * change.value):.2f} points {'better' if change.value > 0 else 'worse'}"


def show_p(p: float) -> str:
    """Formats a p-value with two digits, or by its order of magnitude if it is tiny."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def _count(chosen: np.ndarray) -> int:
    return int(np.count_nonzero(chosen))
