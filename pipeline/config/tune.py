"""The section `tune`: hyperparameter ranges, number of trials, and objective."""

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


class Range(Section):
    """The values that a hyperparameter may take: a list, or a range of numbers."""

    values: tuple[Any, ...] = Field((), "a list of numbers, texts, true and false, null, whole lists or sections")
    min: Optional[Union[int, float]] = Field(None, "the smallest value, in place of a list")
    max: Optional[Union[int, float]] = Field(None, "the largest value, inclusive")
    sampling: Literal["linear", "log"] = Field("linear", "log: every power of ten is equally likely")
    step: Optional[Union[int, float]] = Field(None, "difference of neighbouring values; with log, their quotient")

    SHORT_FORM = {"type": "array", "minItems": 1}

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The values to check: all of a list, or both ends."""
        return self.values or (self.min, self.max)

    @property
    def by_text(self) -> dict[str, Any]:
        """The values of a list by their JSON; empty if all are of one type that keras-tuner's Choice takes."""
        kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in self.values}
        if len(kinds) <= 1 and kinds <= {"number", "str", "bool"}:
            return {}
        return {text: json.loads(text) for text in (json.dumps(value, sort_keys=True) for value in self.values)}

    @property
    def steps(self) -> int:
        """Steps between the ends, counted in decimals: 0.3 is exactly three times 0.1."""
        low, high, step = (decimal.Decimal(str(number)) for number in (self.min, self.max, self.step))
        if self.sampling == "log":
            # Like keras-tuner, but in logarithms, because the quotient may overflow a float.
            return int((math.log(high) - math.log(low)) / math.log(step) + 1e-8)
        return int((high - low) // step)

    @property
    def stepped_values(self) -> list[float]:
        """The values of a range with a step, exact in decimals: 0.3, not 0.30000000000000004."""
        low, step = decimal.Decimal(str(self.min)), decimal.Decimal(str(self.step))
        return [float(low + steps * step) for steps in range(self.steps + 1)]

    def __str__(self) -> str:
        if self.values:
            return ", ".join(map(inline, self.values))
        step = "" if self.step is None else f", step {self.step:g}"
        return f"{self.min:g} to {self.max:g}{', log' if self.sampling == 'log' else ''}{step}"

    def dict(self) -> dict[str, Any]:
        """Returns only the declared keys."""
        names = ("values",) if self.values else ("min", "max", "sampling", "step")
        return {name: value for name, value in super().dict().items() if name in names and value is not None}


class Objective(KeepBest):
    """The metric that ranks trials, from the last evaluation, or from the checkpoint that `keep_best` chooses."""

    metric: str = Field("accuracy", "an evaluation metric: accuracy, average_loss and loss of a network", min_length=1)


class Hyperband(Section):
    """Many short trials; the best continue from their checkpoints.

    Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, 2018,
    https://arxiv.org/abs/1603.06560.
    """

    max_steps: Optional[int] = number(None, 2, MAX_STEPS, "steps of the longest trials; null is the Trainer's")
    min_steps: Optional[int] = number(None, 1, MAX_STEPS, "of the shortest trials, about; null is max_steps / factor^2")
    factor: int = number(3, 2, 100, "one in `factor` trials continues, with `factor` times the steps")

    def initial_trials(self, steps: int) -> int:
        """Returns the number of trials that start from scratch."""
        rounds = self.rounds(steps)
        return sum(math.ceil(rounds / (bracket + 1) * self.factor**bracket) for bracket in range(rounds))

    def rounds(self, steps: int) -> int:
        """Returns the number of rounds, the last one included, at least 1."""
        least = self.min_steps or max(steps // self.factor**2, 1)
        rounds = 1
        while least * self.factor**rounds <= steps:
            rounds += 1
        return rounds

    def shortest(self, steps: int) -> int:
        """Returns the steps of the shortest trials."""
        return max(round(steps / self.factor ** (self.rounds(steps) - 1)), 1)


def expand_ranges(value: Any) -> Any:
    """Expands short forms: `[1, 2]` becomes `{values: [1, 2]}`, and nested sections one dotted path."""
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
    """Hyperparameter tuning by TFX's Tuner with keras-tuner's oracles; the best values train the model."""

    ranges: dict[str, Range] = Field(
        ...,
        "by dotted path, such as trainer.optimizer.learning_rate: a list of values, or {min, max}; for a module "
        "file, names that it reads from fn_args.hyperparameters",
        expand=expand_ranges,
    )
    objective: Objective = inner("the metric that ranks trials; in short, `accuracy`", **BY_METRIC)
    strategy: Literal["random", "bayesian", "hyperband"] = Field("random", "how the next values are chosen")
    max_trials: Optional[int] = number(None, 1, 10_000, "most trials; null is 10, with hyperband as many as it needs")
    parallel_trials: int = number(1, 1, 64, "concurrent trials, on this machine")
    train_steps: Optional[int] = number(None, 1, MAX_STEPS, "steps of a trial; null is the Trainer's")
    hyperband: Hyperband = inner("options of the strategy hyperband")
    max_consecutive_failures: int = number(3, 1, 10_000, "consecutive failed trials that end tuning", operational=True)
    # keras-tuner takes 0 for no seed.
    seed: int = number(1, 1, 2**31 - 1, "seed of the values that are tried")

    @property
    def trials(self) -> Optional[int]:
        """The most trials; None if hyperband determines it."""
        return self.max_trials or (None if self.strategy == HYPERBAND else _TRIALS)

    @property
    def summary(self) -> str:
        """The section in a few words."""
        count = self.trials
        number = f"{count} {'trial' if count == 1 else 'trials'}" if count else "trials"
        return f"the best of {number} by {self.objective.metric}"
