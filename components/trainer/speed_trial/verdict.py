"""What a trial of speed came to: which way is taken, and all that was measured; imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.pipeline.config.trainer import TrainerSection

FILE = "speed_trial.json"
# A way that gains less than this part is not worth another rounding.
_LEAST_GAIN = 1.05
# A step alone that takes less than so many times as long may as well be as fast.
_SLOWER = 1.1
_PRECISIONS = ("float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to compute a training step.

    Args:
        precision: As `trainer.precision`.
        xla: As `trainer.xla`.
    """

    precision: str
    xla: bool

    def __str__(self) -> str:
        return f"{self.precision} with XLA" if self.xla else self.precision


class Slice(NamedTuple):
    """Some steps, one way.

    Attributes:
        examples: That they trained with.
        cpu: Seconds, of all threads of the process.
        wall: Seconds.
    """

    examples: int
    cpu: float
    wall: float


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is decided.

    Args:
        way: That is taken.
        text: How that came, with all numbers, in one line.
        measured: Of each way that could be timed: micros of CPU per example, examples/s, and how many times as fast as
            the plain way, by that of the two which gained less.
    """

    way: Way
    text: str
    measured: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


def ways_of(section: TrainerSection) -> list[Way]:
    """Returns what is to be tried, the plain way first.

    Args:
        section: The declared trainer.
    """
    undecided = section.undecided
    precisions = _PRECISIONS if "precision" in undecided else (section.precision,)
    compiled = (False, True) if "xla" in undecided else (bool(section.xla),)
    return [Way(precision, xla) for xla in compiled for precision in precisions]


def why_hopeless(way: Way, plain: Way, once: Mapping[Way, float]) -> str:
    """Says why a way need not be tried, which may take minutes: XLA on CPU has no kernels for convolutions in 16 bits.

    Args:
        way: That would be next.
        plain: The plain way.
        once: Seconds of a step alone, of the ways that were tried so far.

    Returns:
        The reason; empty if it is to be tried.
    """
    compiled = Way(plain.precision, xla=True)
    if plain.xla or not way.xla or way == compiled:
        return ""
    if compiled not in once:
        return f"{compiled} was left out"
    slower = once[compiled] / once[plain]
    return f"a step of {compiled} takes {slower:.1f} times as long as of {plain}" if slower > _SLOWER else ""


def why_late(way: Way, plain: Way, seconds: float, most: float) -> str:
    """Says why a way is tried no more: that the ways before it took so long to make ready.

    Args:
        way: That would be next.
        plain: The plain way, which is always tried: what training needs is measured by it.
        seconds: Since the first was begun.
        most: Seconds after which no further one is begun.

    Returns:
        The reason; empty if it is to be tried.
    """
    if way == plain or seconds <= most:
        return ""
    return f"the ways before it took {seconds:.0f} s to make ready, over {most:.0f} s"


def decide(
    slices: Mapping[Way, Sequence[Slice]], left_out: Mapping[Way, str], undecided: Sequence[str], by_cpu: bool
) -> Verdict:
    """Decides by the medians of slices that were taken in turns.

    A way is taken for what it gains in CPU time or in wall time, whichever is less: the one is blind to threads that
    wait, and the other to whoever else works on the machine.

    Args:
        slices: By way, the plain one first; of each as many.
        left_out: Why another way could not be timed, or need not be.
        undecided: What was declared as `auto`.
        by_cpu: Whether CPU time counts: not where a GPU computes.

    Returns:
        The verdict.
    """
    plain, *_ = slices
    gains = {way: _gain(slices[plain], taken, by_cpu) for way, taken in slices.items()}
    best = max(gains, key=lambda way: gains[way])
    if gains[best] < _LEAST_GAIN:
        best = plain
    measured, told = {}, []
    for way, taken in slices.items():
        micros = 1e6 * median(each.cpu / each.examples for each in taken)
        rate = median(each.examples / each.wall for each in taken)
        measured[str(way)] = {"cpu_micros_per_example": micros, "examples_per_second": rate, "gain": gains[way]}
        gained = "" if way == plain else f", {gains[way]:.2f} times as fast"
        told.append(f"{way} {micros:.1f} µs of CPU an example and {rate:,.0f} examples/s{gained}")
    told += [f"{way} left out: {reason}" for way, reason in left_out.items()]
    return Verdict(best, f"{_word(best, undecided)}, after a trial: {'; '.join(told)}", measured)


def fall_back(section: TrainerSection, reason: str) -> Verdict:
    """Returns the verdict where nothing could be tried.

    Args:
        section: The declared trainer.
        reason: Why, in a few words.
    """
    way = ways_of(section)[0]
    return Verdict(way, f"{_word(way, section.undecided)}, as no trial could be made: {reason}")


def write(training_dir: str, verdict: Verdict) -> None:
    """Keeps a verdict with the checkpoints: whatever goes on from these finds it."""
    write_whole(_path(training_dir), json.dumps(dataclasses.asdict(verdict), indent=2))


def read(training_dir: str) -> Optional[Verdict]:
    """Reads what `write` wrote; None if there is no verdict yet."""
    if not fileio.exists(_path(training_dir)):
        return None
    with fileio.open(_path(training_dir)) as file:
        values: dict[str, Any] = json.loads(file.read())
    return Verdict(**{**values, "way": Way(**values["way"])})


def _path(training_dir: str) -> str:
    return os.path.join(training_dir, FILE)


def _gain(plain: Sequence[Slice], taken: Sequence[Slice], by_cpu: bool) -> float:
    """How many times as fast as the plain way: each slice against the one that was taken next to it."""
    pairs = [(one, other, one.examples / other.examples) for one, other in zip(plain, taken)]
    wall = median(one.wall / other.wall / share for one, other, share in pairs)
    cpu = median(one.cpu / max(other.cpu, 1e-9) / share for one, other, share in pairs)
    return min(wall, cpu) if by_cpu else wall


def _word(way: Way, undecided: Sequence[str]) -> str:
    told = {"precision": f"precision {way.precision}", "xla": f"xla {str(way.xla).lower()}"}
    return " and ".join(told[name] for name in undecided)
