"""Rules of `trainer.optimizer`: options of another optimizer or schedule, and options that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.optimizer import OF_OPTIMIZERS, OF_SCHEDULES, REQUIRED
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, conflict, given, of_strategy

_PATH = "trainer.optimizer"
_WARMUP, _SCALING, _SCHEDULE = f"{_PATH}.warmup_steps", f"{_PATH}.scaling", f"{_PATH}.schedule"
_CLIPS = ("clip_norm", "global_clip_norm", "clip_value")


def _of_others(key: str, noun: str, table: dict[str, dict[str, Any]]) -> Rule:
    """Returns the rule of options that the declared optimizer or schedule does not take, or requires."""

    def find(case: Case) -> Iterator[dict[str, str]]:
        section = case.trainer.optimizer
        chosen = getattr(section, key)
        for option, owners in table.items():
            if getattr(section, option) is not None and chosen not in owners:
                fix = f"remove it, or set {_PATH}.{key} to {' or '.join(owners)}"
                yield {"option": option, "why": f"the {noun} `{chosen}` has no {option}", "fix": fix}
            elif getattr(section, option) is None and owners.get(chosen) is REQUIRED:
                yield {"option": option, "why": f"the {noun} `{chosen}` needs it", "fix": f"set {_PATH}.{option}"}

    return Rule(f"{_PATH}.{{option}}", find, "{why}", "{fix}", depends=(f"{_PATH}.{key}",))


def _clips(case: Case) -> list[dict[str, str]]:
    found = [key for key in _CLIPS if getattr(case.trainer.optimizer, key) is not None]
    return [{"key": key, "first": f"{_PATH}.{found[0]}"} for key in found[1:]]


def _unsorted(case: Case) -> bool:
    boundaries = case.trainer.optimizer.boundaries or ()
    return list(boundaries) != sorted({*boundaries})


def _wrong_count(case: Case) -> dict[str, int]:
    boundaries, values = case.trainer.optimizer.boundaries, case.trainer.optimizer.values
    if boundaries is None or values is None or len(values) == len(boundaries) + 1:
        return {}
    return {"boundaries": len(boundaries), "rates": len(boundaries) + 1, "given": len(values)}


_PIECEWISE = given(
    lambda case: case.trainer.optimizer.schedule == "piecewise",
    Rule(
        f"{_PATH}.boundaries", _unsorted, "they are not increasing", "sort them, each step once", depends=(_SCHEDULE,)
    ),
    Rule(
        f"{_PATH}.values",
        _wrong_count,
        "{boundaries} boundaries need {rates} rates, not {given}",
        "add or remove some",
        depends=(_SCHEDULE, f"{_PATH}.boundaries"),
    ),
    conflict(
        f"{_PATH}.learning_rate",
        _SCHEDULE,
        lambda case: case.trainer.optimizer.learning_rate != case.trainer.optimizer.__fields__["learning_rate"].default,
        "the schedule `piecewise` has its rates in values",
    ),
)

# Scaling of the rate fits only if more replicas mean more examples per step.
_SCALED = given(
    lambda case: case.trainer.optimizer.scaling != "none",
    of_strategy(
        _SCALING,
        lambda case: case.train.asynchronous,
        "the replicas of parameter_server are not in sync: each worker's step is an update of its own",
        "remove it, and set the learning rate itself; or train with another strategy",
    ),
    conflict(
        _SCALING,
        "trainer.sync_every",
        lambda case: case.trainer.sync_every is not None,
        "with trainer.sync_every each process's step averages over its own examples, not over those of all",
    ),
)

OPTIMIZER = (
    _of_others("name", "optimizer", OF_OPTIMIZERS),
    _of_others("schedule", "schedule", OF_SCHEDULES),
    Rule(
        _WARMUP,
        lambda case: case.trainer.train_steps and case.trainer.optimizer.warmup_steps >= case.trainer.train_steps,
        "the warm-up does not end before training does",
        "lower it to less than trainer.train_steps, {trainer.train_steps}, or train longer",
        depends=("trainer.train_steps",),
    ),
    conflict(
        _WARMUP,
        _SCHEDULE,
        lambda case: case.trainer.optimizer.schedule == "one_cycle" and case.trainer.optimizer.warmup_steps,
        "the schedule `one_cycle` has its own warm-up, the first 30 % of the steps",
    ),
    *_PIECEWISE,
    *_SCALED,
    Rule(
        f"{_PATH}.{{key}}",
        _clips,
        "{first} is given as well",
        "set one to null: --set {first}=null",
        f"at most one of {', '.join(_CLIPS)}",
        ("{first}",),
    ),
)
