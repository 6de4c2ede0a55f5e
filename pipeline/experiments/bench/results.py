"""Results of a comparison of strategies."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from tfx_estimator.pipeline.experiments.bench.measure import Measurement

# Shorter windows are mostly noise.
_LEAST_SECONDS = 2.0
# Above this share of CPU time, other processes disturb the measurement.
_MOST_OTHERS = 0.1
# Relative difference of the examples in a step from the base's. A smaller last batch makes a smaller difference.
_MOST_APART = 0.05


@dataclass(frozen=True)
class Result:
    """Results of one strategy: medians over the rounds, with rates and memories of all tasks together.

    Except for those named `measured`, values are corrected for the CPU time of other processes, which slow a cluster
    down more than a single process.
    """

    strategy: str
    cores: int  # logical CPUs that its tasks ran on
    examples_per_step: float  # counted
    examples_per_second: float  # the speedup, times the base's median
    measured_examples_per_second: float
    cpu_micros_per_example: float  # CPU microseconds, user and system
    speedup: float  # examples/s, divided by those of the base in the same round
    measured_speedup: float
    efficiency: float  # speedup, divided by the number of cores, or of GPUs: 1 is perfect scaling
    peak_rss: int  # sum over the tasks of the peak resident memory, in bytes; the largest of the rounds
    pss: int  # the same for memory at the end, shared memory counted once
    # Share of the time that is saved if the input costs nothing: 1 - a / b, where a and b are the examples/s on the
    # declared input and on one batch in memory, measured one after the other in the first round. If a process has one
    # core (the base, and each worker of a cluster), training and input alternate on it, and this is the whole cost of
    # the input; with more cores, it is the part of that cost that does not overlap with training. None if not
    # measured. Below 0 is noise.
    input_share: Optional[float]
    speedups: tuple[float, ...]  # of each round
    rates: tuple[float, ...]  # examples/s of each round; except for the base, speedup times the base's median

    @property
    def is_corrected(self) -> bool:
        """Whether the correction for other processes is visible in the shown digits."""
        rate = self.examples_per_second / self.measured_examples_per_second
        return f"{self.speedup:.2f}" != f"{self.measured_speedup:.2f}" or f"{rate:.2f}" != "1.00"


@dataclass(frozen=True)
class Comparison:
    """Measurements of all strategies, and the conclusions from them."""

    base: str  # name of the strategy that efficiencies refer to
    measurements: Sequence[Measurement]
    failures: Mapping[str, str]  # errors by strategy
    facts: Mapping[str, Any]  # time, machine, declaration
    ended: str = ""  # why it is incomplete
    refused: Mapping[str, str] = field(default_factory=dict)  # errors of the declaration, by strategy or variation

    def results(self) -> list[Result]:
        """Returns the results of the strategies that did not fail, in the order of the measurements."""
        names = dict.fromkeys(each.strategy for each in self.measurements)
        return [self._result(name) for name in names if name not in self.failures]

    def answer(self) -> str:
        """Returns one line with the fastest strategy and the one with the least CPU time."""
        results = self.results()
        fastest = max(results, key=lambda result: result.speedup)
        least = min(results, key=lambda result: result.cpu_micros_per_example)
        # Strategies with overlapping rounds count as equal.
        least_speedup = min(fastest.speedups)
        near = [each.strategy for each in results if each is not fastest and max(each.speedups) >= least_speedup]
        measured = f", corrected for other processes; {fastest.measured_speedup:.2f}x as measured"
        times = f"{fastest.speedup:.2f}x {self.base}{measured if fastest.is_corrected else ''}"
        doubt = f", within the noise of {', '.join(near)}" if near else ""
        return (
            f"Most examples/s: {fastest.strategy}, {fastest.examples_per_second:,.0f} ({times}{doubt});"
            f" least CPU per example: {least.strategy}, {least.cpu_micros_per_example:,.1f} µs."
        )

    @property
    def not_measured(self) -> dict[str, str]:
        """States of the strategies without a result."""
        return {**dict.fromkeys(self.failures, "failed"), **dict.fromkeys(self.refused, "refused")}

    def doubts(self) -> list[str]:
        """Returns reasons to doubt the numbers, a sentence each."""
        doubts = [self.ended] if self.ended else []
        base, *others = self.results()
        for other in others:
            if abs(other.examples_per_step / base.examples_per_step - 1) <= _MOST_APART:
                continue
            doubts.append(
                f"A step of {other.strategy} trains with {other.examples_per_step:,.1f} examples, one of"
                f" {base.strategy} with {base.examples_per_step:,.1f}: the speedup compares different batches."
            )
        if (shortest := min(each.wall for each in self.measurements)) < _LEAST_SECONDS:
            doubts.append(f"The shortest window lasted {shortest:.2f} s: raise --steps for reproducible numbers.")
        busiest = max(self.measurements, key=lambda each: each.others)
        if busiest.others > _MOST_OTHERS:
            doubts.append(
                f"Other processes took up to {busiest.others:.0%} of the cores (round {busiest.round},"
                f" {busiest.strategy}): examples/s, speedup and efficiency are roughly corrected for it."
            )
        if len({each.round for each in self.measurements}) < 2:
            doubts.append("One round does not show the noise: raise --rounds.")
        return doubts

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison for JSON."""
        return {
            **self.facts,
            "base": self.base,
            "answer": self.answer(),
            "doubts": self.doubts(),
            "strategies": {result.strategy: asdict(result) for result in self.results()},
            "failures": dict(self.failures),
            "refused": dict(self.refused),
            "measurements": [each.to_dict() for each in self.measurements],
        }

    def real(self, strategy: str) -> list[Measurement]:
        """Returns the measurements of a strategy on the declared input."""
        return [each for each in self.measurements if each.strategy == strategy and not each.constant_input]

    def _result(self, strategy: str) -> Result:
        median = statistics.median
        rounds = self.real(strategy)
        base = {each.round: each for each in self.real(self.base)}
        speedups = tuple(
            each.undisturbed_examples_per_second / base[each.round].undisturbed_examples_per_second for each in rounds
        )
        measured = median(each.examples_per_second / base[each.round].examples_per_second for each in rounds)
        base_rates = [each.undisturbed_examples_per_second for each in base.values()]
        # This makes the order by examples/s the order by speedup.
        rates = base_rates if strategy == self.base else [median(base_rates) * speedup for speedup in speedups]
        constant = [each for each in self.measurements if each.strategy == strategy and each.constant_input]
        return Result(
            strategy=strategy,
            cores=rounds[0].cores,
            examples_per_step=median(each.examples_per_step for each in rounds),
            examples_per_second=median(rates),
            measured_examples_per_second=measured * median(each.examples_per_second for each in base.values()),
            cpu_micros_per_example=median(each.cpu_micros_per_example for each in rounds),
            speedup=median(speedups),
            measured_speedup=measured,
            efficiency=median(speedups) / (rounds[0].gpus or rounds[0].cores),
            peak_rss=max(each.peak_rss for each in rounds),
            pss=max(each.pss for each in rounds),
            input_share=_input_share(rounds[0], constant[0]) if constant else None,
            speedups=speedups,
            rates=tuple(rates),
        )


def _input_share(real: Measurement, constant: Measurement) -> float:
    return 1 - real.undisturbed_examples_per_second / constant.undisturbed_examples_per_second
