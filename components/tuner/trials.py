"""Proposes the values of trials by keras-tuner's oracles, which get results in the order of the trials.

An oracle's proposals depend only on its seed and on the results, in their order. So its state is not stored: a tuning
that resumes replays its stored results.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Optional

import keras_tuner
from keras_tuner.engine import oracle as oracle_module
from tfx.dsl.io import fileio

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.base.files import finite
from tfx_estimator.pipeline.config.rules.tune import is_whole
from tfx_estimator.pipeline.config.tune import BAYESIAN, HYPERBAND, RANDOM, Range, TuneSection

COMPLETED, FAILED = "completed", "failed"
# Files of a trial: its values while it trains, and its result.
BEGUN, _FILE = "begun.json", "trial.json"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A set of values to train with."""

    number: int  # from 1
    values: Mapping[str, Any]
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # keras-tuner's HyperParameters.get_config()
    steps: Optional[int] = None  # to train in total; None as declared
    parent: Optional[int] = None  # the trial whose checkpoint it continues; None starts at step 0


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a trial."""

    number: int
    values: Mapping[str, Any]
    status: str  # `completed` or `failed`
    score: Optional[float] = None  # the objective; None if it failed
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of its evaluation, by name
    steps: Optional[int] = None  # the last one; None if unknown
    seconds: float = 0.0  # wall time, including the start of its processes
    reason: str = ""
    parent: Optional[int] = None

    def save(self, folder: str, name: str = _FILE) -> None:
        """Writes it into the trial's folder, atomically."""
        write_whole(os.path.join(folder, name), json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, folder: str, name: str = _FILE) -> Optional[Result]:
        """Reads the file that `save` writes; None if it does not exist."""
        if (fields := read_json(os.path.join(folder, name))) is None:
            return None
        fields["metrics"] = {name: math.nan if value is None else value for name, value in fields["metrics"].items()}
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Returns a dict for JSON, with null for NaN."""
        return {**dataclasses.asdict(self), "metrics": finite(self.metrics)}

    def is_of(self, trial: Trial) -> bool:
        """Returns True for a trial of the same values, up to rounding: another machine may differ in the last bits."""
        if self.parent != trial.parent or self.values.keys() != trial.values.keys():
            return False
        return all(_same(value, trial.values[name]) for name, value in self.values.items())


def forget(folder: str) -> None:
    """Removes a trial's result, so that it runs again."""
    path = os.path.join(folder, _FILE)
    if fileio.exists(path):
        fileio.remove(path)


def best_of(results: list[Result], better: str) -> Optional[Result]:
    """Returns the best completed trial by `max` or `min`, the first of equal ones; None if there is none."""
    sign = 1 if better == "max" else -1
    scored = [each for each in results if each.score is not None]
    return max(scored, key=lambda each: (sign * (each.score or 0.0), -each.number), default=None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other


# Prefix of the values that a hyperband oracle adds.
_OWN = "tuner/"
_UNLIMITED = 10**9
_COLLISIONS = 5_000
# A list of choices is stored with each trial.
_MOST_CHOICES = 10_000


class Proposals:
    """The trials of a tuning; hyperband requires the steps of the longest."""

    def __init__(self, section: TuneSection, steps: Optional[int] = None) -> None:
        self._section = section
        self._steps = section.hyperband.max_steps or steps
        self._oracle = _make_oracle(section, self._steps)
        self._oracle.verbose = 0
        # keras-tuner gives up after 20 repeated draws: with few values a search would end before all were tried, and
        # its trials would depend on how often it calls the oracle.
        self._oracle._max_collisions = _COLLISIONS
        # The oracle writes its state, which is not used.
        self._folder = tempfile.TemporaryDirectory(prefix="tfx-estimator-")
        self._oracle._set_project_dir(self._folder.name, "oracle")
        self.ended = False

    def next(self) -> Optional[Trial]:
        """Proposes a trial; None if there is none before further results, or at all."""
        if self.ended and self._section.strategy == RANDOM:
            return None
        number = len(self._oracle.trials) + 1
        proposed = self._oracle.create_trial(str(number))
        if proposed.status != "RUNNING":
            self.ended = self.ended or proposed.status == "STOPPED"
            return None
        values = _values(self._section, proposed.hyperparameters)
        steps, parent = self._section.train_steps, None
        if self._section.strategy == HYPERBAND:
            assert self._steps is not None
            units = self._section.hyperband.factor ** (self._section.hyperband.rounds(self._steps) - 1)
            steps = max(round(self._steps * values[f"{_OWN}epochs"] / units), 1)
            before = values.get(f"{_OWN}trial_id")
            parent = int(before) + 1 if before is not None else None
        shown = {name: value for name, value in values.items() if not name.startswith(_OWN)}
        config = {**proposed.hyperparameters.get_config(), "values": values}
        return Trial(number, shown, config, steps, parent)

    def record(self, result: Result) -> None:
        """Passes the result of a trial to the oracle."""
        trial = next(each for each in self._oracle.trials.values() if int(each.trial_id) + 1 == result.number)
        trial.status, trial.message = ("COMPLETED", None) if result.status == COMPLETED else ("FAILED", result.reason)
        if result.score is not None:
            self._oracle.update_trial(trial.trial_id, {self._section.objective.metric: result.score})
        self._oracle.end_trial(trial)

    def close(self) -> None:
        """Removes the oracle's folder."""
        self._folder.cleanup()


def _values(section: TuneSection, proposed: keras_tuner.HyperParameters) -> dict[str, Any]:
    """Converts proposed values to the declared ones: NumPy's numbers to Python's, and texts to their values."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in proposed.values.items()}
    for name, each in section.ranges.items():
        if each.sampling == "log" and each.step is not None and each.max is not None:
            # 1e-5 * 10**8 is 1000.0000000000001, which may be invalid.
            plain[name] = min(plain[name], each.max)
    known = {name: each.by_text for name, each in section.ranges.items()}
    return {name: known[name][value] if known.get(name) else value for name, value in plain.items()}


def first_values(section: TuneSection) -> dict[str, Any]:
    """Returns the config of `HyperParameters.get_config` with the first declared value of each range."""
    space = make_space(section)
    return {**space.get_config(), "values": _values(section, space)}


def _make_oracle(section: TuneSection, steps: Optional[int]) -> oracle_module.Oracle:
    common: dict[str, Any] = {
        "objective": keras_tuner.Objective(section.objective.metric, section.objective.better),
        "hyperparameters": make_space(section),
        "seed": section.seed,
        "allow_new_entries": False,
        "tune_new_entries": False,
        # Search counts them.
        "max_consecutive_failed_trials": _UNLIMITED,
    }
    if section.strategy == HYPERBAND:
        band = section.hyperband
        assert steps is not None
        oracle = keras_tuner.oracles.HyperbandOracle(
            max_epochs=band.factor ** (band.rounds(steps) - 1), factor=band.factor, **common
        )
        oracle.max_trials = section.max_trials
        return oracle
    if section.strategy == BAYESIAN:
        return keras_tuner.oracles.BayesianOptimizationOracle(max_trials=section.trials, **common)
    return keras_tuner.oracles.RandomSearchOracle(max_trials=section.trials, **common)


def make_space(section: TuneSection) -> keras_tuner.HyperParameters:
    """Converts the ranges to keras-tuner's."""
    space = keras_tuner.HyperParameters()
    for name, each in section.ranges.items():
        _add(space, name, each)
    return space


def _add(space: keras_tuner.HyperParameters, name: str, each: Range) -> None:
    steps, values = None if each.values or each.step is None else each.steps, [*each.by_text] or each.values
    if steps is not None and each.sampling == "linear" and not is_whole(name, each):
        # keras-tuner computes the steps of fractions in floating point, and may end before `max`.
        if steps < _MOST_CHOICES:
            space.Choice(name, each.stepped_values)
        else:
            assert each.max is not None
            assert each.step is not None
            space.Float(name, each.min, each.max + each.step / 2, step=each.step)
    elif not each.values:
        kind = space.Int if is_whole(name, each) else space.Float
        kind(name, each.min, each.max, step=each.step, sampling=each.sampling)
    elif len(values) == 1:
        space.Fixed(name, values[0])
    elif isinstance(values[0], bool):
        space.Boolean(name)
    else:
        numbers = any(isinstance(value, float) for value in values)
        space.Choice(name, [float(value) if numbers else value for value in values])
