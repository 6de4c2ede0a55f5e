"""The section `tune`: which declared values are tried, how many times, and by what they are judged."""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.best import BY_METRIC, KeepBest
from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, inner, number
from tfx_estimator.pipeline.config.yaml_text import inline

RANGES = "tune.ranges"
RANDOM, BAYESIAN, HYPERBAND = "random", "bayesian", "hyperband"
_TRIALS = 10
# The values of keras-tuner.
_LEAST_AT_RANDOM, _AT_RANDOM = 3, 3


class Range(Section):
    """The values that one declared value may take: a list, or whatever lies between two numbers."""

    values: tuple[Any, ...] = Field((), "these: numbers, texts, true and false, null, whole lists or sections")
    min: Optional[Union[int, float]] = Field(None, "the least, in place of a list")
    max: Optional[Union[int, float]] = Field(None, "the most, itself included")
    sampling: Literal["linear", "log"] = Field("linear", "log: each power of ten is as likely as another")
    step: Optional[Union[int, float]] = Field(None, "from one value to the next: added, or with log multiplied")

    SHORT_FORM = {"type": "array", "minItems": 1}

    @property
    def extremes(self) -> tuple[Any, ...]:
        """What is to be checked: each value of a list, or the ends."""
        return self.values or (self.min, self.max)

    @property
    def by_text(self) -> dict[str, Any]:
        """The values of a list, each by its JSON; none where keras-tuner has a choice of them: of one plain kind."""
        kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in self.values}
        if len(kinds) <= 1 and kinds <= {"number", "str", "bool"}:
            return {}
        return {text: json.loads(text) for text in (json.dumps(value, sort_keys=True) for value in self.values)}

    @property
    def steps(self) -> int:
        """How many steps lie between the ends; in decimals, as 0.3 is three times 0.1 and no less."""
        assert self.min is not None
        assert self.max is not None
        assert self.step is not None
        if self.sampling == "log":
            # As keras-tuner counts them, but in logarithms, because the quotient may be too large for a float.
            return int((math.log(self.max) - math.log(self.min)) / math.log(self.step) + 1e-8)
        low, high, step = (decimal.Decimal(str(number)) for number in (self.min, self.max, self.step))
        return int((high - low) // step)

    @property
    def stepped_values(self) -> list[float]:
        """The values of a range with a step as one would write them: 0.3, and no 0.30000000000000004."""
        low, step = decimal.Decimal(str(self.min)), decimal.Decimal(str(self.step))
        return [float(low + steps * step) for steps in range(self.steps + 1)]

    def __str__(self) -> str:
        if self.values:
            return ", ".join(map(inline, self.values))
        step = "" if self.step is None else f", step {self.step:g}"
        return f"{self.min:g} to {self.max:g}{', log' if self.sampling == 'log' else ''}{step}"

    def dict(self) -> dict[str, Any]:
        """Returns what was declared, and not what was left open."""
        names = ("values",) if self.values else ("min", "max", "sampling", "step")
        return {name: value for name, value in super().dict().items() if name in names and value is not None}


class Objective(KeepBest):
    """The metric that a trial is judged by: of its last evaluation, or of the checkpoint that `keep_best` chooses."""

    metric: str = Field(
        "accuracy", "a metric of your evaluation: accuracy, average_loss and loss of a network", min_length=1
    )


class Hyperband(Section):
    """Many short trials, of which the best go on, from their checkpoints.

    Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, 2018,
    https://arxiv.org/abs/1603.06560.
    """

    max_steps: Optional[int] = number(None, 2, MAX_STEPS, "steps of the longest trials; null is those of the Trainer")
    min_steps: Optional[int] = number(None, 1, MAX_STEPS, "steps of the shortest, about; null is max_steps / factor^2")
    factor: int = number(3, 2, 100, "one in so many goes on, with so many times the steps")

    def initial_trials(self, steps: int) -> int:
        """Returns how many different trials there are that go on from no other one."""
        rounds = self.rounds(steps)
        return sum(math.ceil(rounds / (bracket + 1) * self.factor**bracket) for bracket in range(rounds))

    def rounds(self, steps: int) -> int:
        """Returns how often the best can be told from the others, the last time included, at least 1."""
        least = self.min_steps or max(steps // self.factor**2, 1)
        rounds = 1
        while least * self.factor**rounds <= steps:
            rounds += 1
        return rounds

    def shortest(self, steps: int) -> int:
        """Returns the steps of the shortest trials."""
        return max(round(steps / self.factor ** (self.rounds(steps) - 1)), 1)


def expand_ranges(value: Any) -> Any:
    """Writes short forms as mappings: `[1, 2]` is `{values: [1, 2]}`, and nested sections are one dotted path."""
    return _flat(value) if isinstance(value, Mapping) else value


def _flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{path}{key}"
        if isinstance(item, (list, tuple)):
            found[name] = {"values": list(item)}
        elif isinstance(item, Mapping) and item and not any(key in Range.__fields__ for key in item):
            found.update(_flat(item, f"{name}."))
        else:
            found[name] = item
    return found


class TuneSection(Section):
    """Trials of declared values, of which the best train the model: TFX's Tuner, with the oracles of keras-tuner."""

    ranges: dict[str, Range] = Field(
        ...,
        "by dotted path, as trainer.optimizer.learning_rate: a list of values, or {min, max}; for a module "
        "file, names that it finds in fn_args.hyperparameters",
        expand=expand_ranges,
    )
    objective: Objective = inner("what a trial is judged by; in short, `accuracy`", **BY_METRIC)
    strategy: Literal["random", "bayesian", "hyperband"] = Field("random", "how the next values are chosen")
    max_trials: Optional[int] = number(None, 1, 10_000, "null is 10, and of hyperband as many as it takes")
    parallel_trials: int = number(1, 1, 64, "at a time, on this machine")
    train_steps: Optional[int] = number(None, 1, MAX_STEPS, "steps of a trial; null is those of the Trainer")
    hyperband: Hyperband = inner("of the strategy hyperband")
    max_consecutive_failures: int = number(
        3, 1, 10_000, "trials that fail one after another, after which the tuning fails", operational=True
    )
    # 0 is none to keras-tuner.
    seed: int = number(1, 1, 2**31 - 1, "of the values that are tried")

    @property
    def trials(self) -> Optional[int]:
        """How many there are at most; None where hyperband says it."""
        return self.max_trials or (None if self.strategy == HYPERBAND else _TRIALS)

    @property
    def summary(self) -> str:
        """The section in a few words."""
        count = self.trials
        number = f"{count} {'trial' if count == 1 else 'trials'}" if count else "trials"
        return f"the best of {number} by {self.objective.metric}"

    @property
    def initial_points(self) -> int:
        """How many trials the strategy bayesian begins with, whose values are drawn at random."""
        return max(_LEAST_AT_RANDOM, _AT_RANDOM * len(self.ranges))
