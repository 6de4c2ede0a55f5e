"""What a comparison of strategies found."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from tfx_estimator.pipeline.experiments.bench.measure import Measurement

# Shorter windows say more about the moment than about the strategy.
_LEAST_SECONDS = 2.0
# A machine that others use more than this measures them as well.
_MOST_OTHERS = 0.1
# Share of the base's examples in a step. An input with a smaller last batch differs by less.
_MOST_APART = 0.05


@dataclass(frozen=True)
class Result:
    """What one strategy came to; medians over the rounds, rates and memories of all tasks together.

    What other processes took of the cores would hit a cluster harder than one process: what does not say that it was
    measured is without that.
    """

    strategy: str
    cores: int  # logical CPUs that its tasks ran on
    examples_per_step: float  # counted
    examples_per_second: float  # the speedup, times the median of the base's
    measured_examples_per_second: float
    cpu_micros_per_example: float  # CPU microseconds, user and system
    speedup: float  # examples/s, divided by those of the base in the same round
    measured_speedup: float
    efficiency: float  # speedup, divided by the number of cores, or of GPUs: 1 is perfect scaling
    peak_rss: int  # sum over the tasks of the largest resident memory, in bytes; the largest of the rounds
    pss: int  # the same for memory at the end, what tasks share counted once
    # Share of the time that goes when the input costs nothing: 1 - a / b, where a and b are the examples/s on the
    # declared input and on one batch that stays in memory, one run after the other in the first round. Where a process
    # has one core (the base, and each worker of a cluster), training and input take turns on it, and this is all that
    # the input costs; if it has more cores, this is what of that cost is not hidden behind training. None if it was
    # not measured. Below 0 is noise.
    input_share: Optional[float]
    speedups: tuple[float, ...]  # of each round
    rates: tuple[float, ...]  # examples/s of each round; of another than the base, at its pace in the median

    @property
    def is_corrected(self) -> bool:
        """Did other processes take so much of the cores that the correction can be seen."""
        rate = self.examples_per_second / self.measured_examples_per_second
        return f"{self.speedup:.2f}" != f"{self.measured_speedup:.2f}" or f"{rate:.2f}" != "1.00"


@dataclass(frozen=True)
class Comparison:
    """What a comparison found."""

    base: str  # name of the strategy that efficiencies refer to
    measurements: Sequence[Measurement]
    failures: Mapping[str, str]  # why a strategy could not be measured, by its name
    facts: Mapping[str, Any]  # when, on which machine, what was declared
    ended: str = ""  # why it is not whole
    refused: Mapping[str, str] = field(default_factory=dict)  # why some cannot be trained so, by what they are

    def results(self) -> list[Result]:
        """Sums up the strategies that did not fail, in the order of the measurements."""
        names = dict.fromkeys(each.strategy for each in self.measurements)
        return [self._result(name) for name in names if name not in self.failures]

    def answer(self) -> str:
        """Returns which strategy pays, in one line."""
        results = self.results()
        fastest = max(results, key=lambda result: result.speedup)
        least = min(results, key=lambda result: result.cpu_micros_per_example)
        # Rounds that overlap do not tell two strategies apart.
        least_speedup = min(fastest.speedups)
        near = [each.strategy for each in results if each is not fastest and max(each.speedups) >= least_speedup]
        measured = f", without what other processes took; {fastest.measured_speedup:.2f}x as measured"
        times = f"{fastest.speedup:.2f}x {self.base}{measured if fastest.is_corrected else ''}"
        doubt = f", not told apart from {', '.join(near)}" if near else ""
        return (
            f"Most examples/s: {fastest.strategy}, {fastest.examples_per_second:,.0f} ({times}{doubt});"
            f" least CPU per example: {least.strategy}, {least.cpu_micros_per_example:,.1f} µs."
        )

    @property
    def not_measured(self) -> dict[str, str]:
        """What became of the strategies that there is no result of."""
        return {**dict.fromkeys(self.failures, "failed"), **dict.fromkeys(self.refused, "refused")}

    def doubts(self) -> list[str]:
        """Returns what the reader must know before trusting the numbers."""
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
            doubts.append(f"The shortest window lasted {shortest:.2f} s: raise --steps for numbers that come again.")
        busiest = max(self.measurements, key=lambda each: each.others)
        if busiest.others > _MOST_OTHERS:
            doubts.append(
                f"Other processes took up to {busiest.others:.0%} of the cores (round {busiest.round},"
                f" {busiest.strategy}): examples/s, speedup and efficiency allow for it roughly."
            )
        if len({each.round for each in self.measurements}) < 2:
            doubts.append("One round says nothing of the noise: raise --rounds.")
        return doubts

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
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
        """The measurements of a strategy on the declared input."""
        return [each for each in self.measurements if each.strategy == strategy and not each.constant_input]

    def _result(self, strategy: str) -> Result:
        median = statistics.median
        rounds = self.real(strategy)
        base = {each.round: each for each in self.real(self.base)}
        speedups = tuple(
            each.undisturbed_examples_per_second / base[each.round].undisturbed_examples_per_second for each in rounds
        )
        measured = median(each.examples_per_second / base[each.round].examples_per_second for each in rounds)
        paces = [each.undisturbed_examples_per_second for each in base.values()]
        # So the order by examples/s is that by speedup.
        rates = paces if strategy == self.base else [median(paces) * speedup for speedup in speedups]
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
