"""Rules of a training's course: its length, first weights, evaluations, profile, threads and GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.best import METRICS
from tfx_estimator.pipeline.config.builtin import SHORT_NAMES
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import STRATEGY, Rule, conflict, given
from tfx_estimator.pipeline.config.warm_start import WarmStart

_WARM, _EVALUATOR = "trainer.warm_start", "trainer.distribution.evaluator"
_WEIGHTS = {
    "checkpoint": "a checkpoint, `model.ckpt-100` of `model.ckpt-100.index`; or a folder of some",
    "model": "a folder of a SavedModel, a run's model, or pushed models",
}
_STEPS, _EPOCHS = "trainer.train_steps", "trainer.train_epochs"

LENGTH = (
    Rule(
        _EPOCHS,
        lambda case: case.trainer.train_steps is not None and case.trainer.train_epochs is not None,
        f"{_STEPS} and {_EPOCHS} are both given",
        "exactly one of the two",
        f"set one to null: --set {_STEPS}=null",
        (_STEPS, _EPOCHS),
    ),
    Rule(
        _STEPS,
        lambda case: case.trainer.train_steps is None and case.trainer.train_epochs is None,
        f"neither {_STEPS} nor {_EPOCHS} is given",
        "exactly one of the two",
        f"add `train_steps:` or `train_epochs:` under `trainer:`, or --set {_EPOCHS}=10",
        (_STEPS, _EPOCHS),
    ),
)


def _warm_start(case: Case) -> Any:
    """What is wrong with the weights that training begins with, in words, or nothing."""
    section = case.trainer.warm_start or WarmStart()
    named = [key for key in ("checkpoint", "model") if getattr(section, key) is not None]
    if len(named) != 1:
        why = "checkpoint and model are both given" if named else "none of the two is given"
        return {"key": "", "why": why, "fit": "exactly one of checkpoint and model", "mend": "name one"}
    key, value = f".{named[0]}", getattr(section, named[0])
    if is_address(value):
        mend = "copy it to this machine"
        return {"key": key, "why": "this is an address", "fit": "a path of this machine", "mend": mend}
    if not section.prefix:
        why = "no weights are there" if os.path.lexists(value) else "there is no such file or folder"
        mend = "check the path: it is relative to the declaration's folder"
        return {"key": key, "why": why, "fit": _WEIGHTS[named[0]], "mend": mend}
    if section.lacks_data():
        name = os.path.basename(section.prefix)
        why = f"the checkpoint is incomplete: of {name} there is the index, and not all of the weights"
        fit = f"{name}.index, and each of {name}.data-00000-of-00001 and the like"
        return {"key": key, "why": why, "fit": fit, "mend": "copy it again from where it comes"}
    return None


WARM_START = given(
    lambda case: case.trainer.warm_start is not None,
    Rule(f"{_WARM}{{key}}", _warm_start, "{why}", "{fit}", "{mend}"),
    conflict(
        _WARM,
        "trainer.distribution.train.variable_partitioner",
        lambda case: case.train.variable_partitioner is not None,
        "the weights of variables that are cut into parts are not read",
    ),
)


def _unknown_metric(case: Case, key: str) -> Any:
    section, path = getattr(case.trainer, key), f"trainer.{key}"
    near = nearest(section.metric, METRICS)
    if case.trainer.model in SHORT_NAMES["trainer.model"] and section.metric not in METRICS:
        return {
            "why": f"the evaluation of {case.trainer.model} reports no `{section.metric}`",
            "fit": f"one of {', '.join(METRICS)}",
            "mend": f"did you mean `{near}`?" if near else "choose one of them",
            "origin": "trainer.model",
        }
    if section.better is not None:
        return None
    mode = f"set {path}.mode"
    return {
        "why": f"its name does not tell whether more or less of `{section.metric}` is better",
        "fit": f"{path}.mode: max, or min",
        "mend": f"did you mean `{near}`? If your evaluation reports `{section.metric}`, {mode}" if near else mode,
        "origin": f"{path}.mode",
    }


def _deciding(key: str) -> tuple[Rule, ...]:
    """Rules of what evaluations while training decide."""
    path = f"trainer.{key}"
    return given(
        lambda case: getattr(case.trainer, key) is not None,
        Rule(
            path,
            lambda case: case.train.is_cluster and not case.distribution.evaluator,
            "it goes by evaluations while training, and the processes of {train.strategy} train only",
            f"{_EVALUATOR}: true, a task of its own that evaluates each checkpoint",
            f"set {_EVALUATOR} to true, or remove {path}",
            (STRATEGY, _EVALUATOR),
        ),
        Rule(
            f"{path}.metric",
            lambda case: _unknown_metric(case, key),
            "{why}",
            "{fit}",
            "{mend}",
            ("{origin}", "trainer.module_file"),
        ),
    )


def _begins_late(case: Case) -> bool:
    profile, steps = case.trainer.profile, case.trainer.train_steps
    return bool(profile is not None and steps and profile.start_step >= steps)


_LATE_PROFILE = Rule(
    "trainer.profile.start_step",
    _begins_late,
    "training ends before the profile begins",
    f"less than {_STEPS}, {{trainer.train_steps}}",
    "lower it, or train longer",
    (_STEPS,),
)


def _few_threads(case: Case) -> Iterator[dict[str, int]]:
    threads, least = case.trainer.threads, case.train.worker_count + 1
    if case.train.asynchronous and threads.inter_op is not None and threads.inter_op < least:
        yield {"least": least}


RUNTIME = (
    Rule(
        "trainer.intra_op_threads",
        lambda case: case.trainer.threads.intra_op is not None and case.trainer.intra_op_threads is not None,
        "trainer.threads.intra_op is the same, and is given as well",
        "one of the two",
        "remove it",
        ("trainer.threads.intra_op",),
    ),
    Rule(
        "trainer.threads.inter_op",
        _few_threads,
        "the servers of parameter_server, of {train.worker_count} workers, would wait for each other for ever",
        "{least} or more, one more than there are workers",
        "raise it, or remove it",
        (STRATEGY, "trainer.distribution.train.workers"),
    ),
    conflict(
        "trainer.gpu.memory_limit_mb",
        "trainer.gpu.memory_growth",
        lambda case: case.trainer.gpu.memory_growth and case.trainer.gpu.memory_limit_mb is not None,
        "TensorFlow takes a limit at once, and cannot grow up to it as well",
    ),
)

TRAINING = (
    *LENGTH,
    *WARM_START,
    *_deciding("keep_best"),
    *_deciding("early_stopping"),
    _LATE_PROFILE,
    *RUNTIME,
)
