"""What a comparison of strategies does, and where it writes; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.bench.strategies import Contender

FILES = JSON_FILE, PNG_FILE, HTML_FILE = "strategies.json", "strategies.png", "strategies.html"
_MAX_STEPS = 1_000_000
_MAX_ROUNDS = 1000
# No worker comes so late that the others have done them.
_TRAIN_STEPS = 10**9


@dataclass(frozen=True)
class Run:
    """One training that is measured.

    Args:
        round: From 1.
        constant_input: On one batch that stays in memory.
    """

    contender: Contender
    round: int
    constant_input: bool = False

    def __str__(self) -> str:
        return f"{self.contender} (constant batch)" if self.constant_input else str(self.contender)


@dataclass(frozen=True)
class Plan:
    """What a comparison does.

    Args:
        contenders: The strategies; the first is the base.
        steps: Steps that are measured.
        warmup: Steps before those, and after the first one of the task that comes last.
        rounds: How often each strategy is measured.
        input_share: Measure each once more, on one batch that stays in memory.
    """

    contenders: tuple[Contender, ...]
    steps: int
    warmup: int
    rounds: int
    input_share: bool

    def check(self) -> None:
        """Checks the numbers.

        Raises:
            DeclarationError: One is out of range.
        """
        for option, value, least, most in (
            ("--steps", self.steps, 1, _MAX_STEPS),
            ("--warmup", self.warmup, 1, _MAX_STEPS),
            ("--rounds", self.rounds, 1, _MAX_ROUNDS),
        ):
            if not least <= value <= most:
                raise DeclarationError(
                    f"{option} {value}: this is out of range",
                    expected=f"a number from {least:,} to {most:,}",
                    todo="take enough steps for some seconds each, and 3 rounds or more",
                )

    @property
    def train_steps(self) -> int:
        """Steps that are declared: training goes on until every task has measured, however late a worker comes."""
        return _TRAIN_STEPS

    def runs(self) -> Iterator[Run]:
        """The trainings in their order: all strategies in turns, so that what else the machine does meets them alike.

        The one on a constant batch follows at once the one that it is compared with.
        """
        for number in range(1, self.rounds + 1):
            for contender in self.contenders:
                yield Run(contender, number)
                if self.input_share and number == 1:
                    yield Run(contender, number, constant_input=True)
