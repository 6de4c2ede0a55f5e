"""The section `tune`: which declared values are tried, how many times, and by what they are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Optional, Union

from pydantic.v1 import Field, StrictFloat, StrictInt, conint, validator

from tfx_estimator.pipeline.config.best import METRIC_SCHEMA, KeepBest, long_metric
from tfx_estimator.pipeline.config.section import MAX_STEPS, Section, allow_short
from tfx_estimator.pipeline.config.yaml_text import inline

RANGES = "tune.ranges"
RANDOM, BAYESIAN, HYPERBAND = "random", "bayesian", "hyperband"
_TRIALS = 10
# The values of keras-tuner.
_LEAST_AT_RANDOM, _AT_RANDOM = 3, 3


class Range(Section):
    """The values that one declared value may take: a list, or whatever lies between two numbers."""

    values: tuple[Any, ...] = Field(
        default=(), description="these: numbers, texts, true and false, null, whole lists or sections"
    )
    min: Optional[Union[StrictInt, StrictFloat]] = Field(default=None, description="the least, in place of a list")
    max: Optional[Union[StrictInt, StrictFloat]] = Field(default=None, description="the most, itself included")
    sampling: Literal["linear", "log"] = Field(
        default="linear", description="log: each power of ten is as likely as another"
    )
    step: Optional[Union[StrictInt, StrictFloat]] = Field(
        default=None, description="from one value to the next: added, or with log multiplied"
    )

    class Config:
        """pydantic's settings."""

        @staticmethod
        def schema_extra(schema: dict[str, Any], model: type[Section]) -> None:
            """Tells editors that a list alone will do."""
            Section.Config.schema_extra(schema, model)
            allow_short(schema, {"type": "array", "minItems": 1})

    def dict(self, **kwargs: Any) -> dict[str, Any]:
        """Returns what was declared, and not what was left open."""
        names = ("values",) if self.values else ("min", "max", "sampling", "step")
        return {name: value for name, value in super().dict(**kwargs).items() if name in names and value is not None}

    @property
    def extremes(self) -> tuple[Any, ...]:
        """What is to be checked: each value of a list, or the ends."""
        return self.values or (self.min, self.max)

    def __str__(self) -> str:
        if self.values:
            return ", ".join(map(inline, self.values))
        step = "" if self.step is None else f", step {self.step:g}"
        return f"{self.min:g} to {self.max:g}{', log' if self.sampling == 'log' else ''}{step}"


class Objective(KeepBest):
    """The metric that a trial is judged by: of its last evaluation, or of the checkpoint that `keep_best` chooses."""

    metric: str = Field(
        default="accuracy",
        min_length=1,
        max_length=200,
        description="a metric of your evaluation: accuracy, average_loss and loss of a network",
    )


class Hyperband(Section):
    """Many short trials, of which the best go on, from their checkpoints.

    Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, 2018,
    https://arxiv.org/abs/1603.06560.
    """

    max_steps: Optional[conint(ge=2, le=MAX_STEPS)] = Field(  # type: ignore[valid-type]
        default=None, description="steps of the longest trials; null is those of the Trainer"
    )
    min_steps: Optional[conint(ge=1, le=MAX_STEPS)] = Field(  # type: ignore[valid-type]
        default=None, description="steps of the shortest, about; null is max_steps / factor^2"
    )
    factor: conint(ge=2, le=100) = Field(  # type: ignore[valid-type]
        default=3, description="one in so many goes on, with so many times the steps"
    )

    def begun(self, steps: int) -> int:
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


class TuneSection(Section):
    """Trials of declared values, of which the best train the model: TFX's Tuner, with the oracles of keras-tuner."""

    ranges: dict[str, Range] = Field(
        ...,
        description="by dotted path, as trainer.optimizer.learning_rate: a list of values, or {min, max}; for a module "
        "file, names that it finds in fn_args.hyperparameters",
    )
    objective: Objective = Field(
        default=Objective(), description="what a trial is judged by; in short, `accuracy`", short_form=METRIC_SCHEMA
    )
    strategy: Literal["random", "bayesian", "hyperband"] = Field(
        default="random", description="how the next values are chosen"
    )
    max_trials: Optional[conint(ge=1, le=10_000)] = Field(  # type: ignore[valid-type]
        default=None, description="null is 10, and of hyperband as many as it takes"
    )
    parallel_trials: conint(ge=1, le=64) = Field(  # type: ignore[valid-type]
        default=1, description="at a time, on this machine"
    )
    train_steps: Optional[conint(ge=1, le=MAX_STEPS)] = Field(  # type: ignore[valid-type]
        default=None, description="steps of a trial; null is those of the Trainer"
    )
    hyperband: Hyperband = Field(default=Hyperband(), description="of the strategy hyperband")
    max_consecutive_failures: conint(ge=1, le=10_000) = Field(  # type: ignore[valid-type]
        default=3, description="trials that fail one after another, after which the tuning fails", operational=True
    )
    # 0 is none to keras-tuner.
    seed: conint(ge=1, le=2**31 - 1) = Field(default=1, description="of the values that are tried")  # type: ignore[valid-type]

    _long_metric = validator("objective", pre=True, allow_reuse=True)(long_metric)

    @validator("ranges", pre=True, allow_reuse=True)
    def _long_ranges(cls, value: Any) -> Any:  # noqa: N805
        return long_ranges(value)

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
    def at_random(self) -> int:
        """How many trials the strategy bayesian begins with, whose values are drawn at random."""
        return max(_LEAST_AT_RANDOM, _AT_RANDOM * len(self.ranges))


def long_ranges(value: Any) -> Any:
    """Writes short forms as mappings: `[1, 2]` is `{values: [1, 2]}`, and nested sections are one dotted path."""
    if not isinstance(value, Mapping):
        return value
    longer = _flat(value)
    return value if longer == value else longer


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
