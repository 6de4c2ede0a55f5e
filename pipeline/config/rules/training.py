"""Rules of training: its code, length, initial weights, evaluations, profile and threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from tfx_estimator.pipeline.config.best import METRICS, METRICS_OF_CANNED, METRICS_OF_TABLES
from tfx_estimator.pipeline.config.known import PARAMS_OF_TABLES, TABLE_NAMES, names_of
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.rules.rule import CODE, STRATEGY, Case, Rule, conflict, given, of_strategy
from tfx_estimator.pipeline.config.task import BINARY, REGRESSION
from tfx_estimator.pipeline.config.yaml_text import inline

_WARM, _EVALUATOR, _STEPS = "trainer.warm_start", "trainer.distribution.evaluator", "trainer.train_steps"
_WEIGHTS = {
    "weights": "a file of Keras's save_weights, .weights.h5 or .h5, or of its save, .keras; one of TensorFlow's format "
    "is a checkpoint",
    "checkpoint": "a checkpoint, `model.ckpt-100` of `model.ckpt-100.index`; or a folder of some",
    "model": "a folder of a SavedModel, a run's model, or pushed models",
}


def _one_of(section: str, one: str, other: str, example: str = "") -> tuple[Rule, ...]:
    """Returns the rules of two exclusive keys; with an `example`, one of them is required."""
    both = (f"{section}.{one}", f"{section}.{other}")

    def count(case: Case) -> int:
        values = getattr(case, section)
        return (getattr(values, one) is not None) + (getattr(values, other) is not None)

    todo = f"set one to null: --set {both[0]}=null"
    twice = Rule(both[1], lambda case: count(case) == 2, f"{both[0]} and {both[1]} are both given", todo, depends=both)
    none = Rule(
        both[0],
        lambda case: example and not count(case),
        f"neither {both[0]} nor {both[1]} is given",
        f"add `{one}:` or `{other}:` under `{section}:`, or --set {example}",
        "exactly one of the two",
        both,
    )
    return twice, none


CODE_AND_LENGTH = (
    *_one_of("trainer", "model", "module_file", "trainer.model=mnist_cnn"),
    *_one_of("transform", "preprocessing_fn", "module_file"),
    *_one_of("trainer", "train_steps", "train_epochs", "trainer.train_epochs=10"),
    conflict(
        "trainer.path",
        "trainer.module_file",
        lambda case: case.trainer.module_file and case.trainer.path != "estimator",
        "a module file trains by its own code, which may call Keras's fit",
    ),
    conflict(
        "trainer.path",
        "trainer.tf1",
        lambda case: case.trainer.tf1 and case.trainer.path != "estimator",
        "Keras trains with TensorFlow 2's behaviour",
    ),
    Rule(
        "trainer.augment",
        lambda case: case.trainer.augment and case.trainer.module_file and {"value": ""},
        "a module file reads its own examples, so augment would have no effect",
        "remove it, and augment the images in the module file's own input_fn; or name a trainer.model",
        depends=("trainer.module_file",),
    ),
    Rule(
        "trainer.tensorboard",
        lambda case: case.trainer.tensorboard.is_declared and case.trainer.module_file and {"value": ""},
        "a module file reads its own examples and makes its own model",
        "remove it, and call tf.compat.v1.summary.image and histogram in the module file; or name a trainer.model",
        depends=("trainer.module_file",),
    ),
    Rule(
        "trainer.augment.{index}",
        lambda case: [
            {"index": index, "named": " and ".join(operation.declared) or "nothing", "value": ""}
            for index, operation in enumerate(case.trainer.augment)
            if len(operation.declared) != 1
        ],
        "an item is one operation, and here it is {named}",
        "write an item for each",
    ),
)


def _unknown_params(case: Case) -> Iterator[dict[str, str]]:
    """Yields names of trainer.params that are not arguments of the network function."""
    known = list(PARAMS_OF_TABLES)
    if case.trainer.model not in TABLE_NAMES["trainer.model"]:
        arguments = case.arguments
        if arguments is None or arguments.kwarg is not None or case.is_model_fn:
            return
        known = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
    for name in case.trainer.params:
        if name not in known:
            near = nearest(name, known)
            todo = f"did you mean `{near}`?" if near else "remove it, or add it to the function's arguments"
            yield {"name": name, "shown": inline(name), "known": ", ".join(known) or "none", "todo": todo, "value": ""}


# The code is read as text, never imported: assigned or imported names, classes and decorated functions pass.
NETWORK = (
    Rule(
        "trainer.path",
        lambda case: case.trainer.path != "estimator" and case.trainer.module_file is None and case.user_code,
        "{trainer.model} is a whole Estimator model_fn, by its arguments features and labels",
        "set trainer.path: estimator; or name the function that makes the network: loss and optimizer are then the "
        "declaration's, or the model's own if it is compiled",
        depends=("trainer.model",),
    ),
    Rule(
        "trainer.params.{name}", _unknown_params, "{trainer.model} takes no `{shown}`", "{todo}", "one of {known}", CODE
    ),
)


def _one_copy(case: Case) -> Any:
    """Returns why a kept training cannot be on several devices, if it is declared to be."""
    if case.train.asynchronous:
        return {"why": "the weights of its graph cannot be in other processes"}
    return case.train.replicas > 1 and case.kept["uncut"] and {"why": case.kept["uncut"]}


def _modes_left_out(case: Case) -> Any:
    modes = [each for each in case.kept.get("left_out", ()) if each.startswith("mode ")]
    return modes and {"modes": ", and ".join(modes)}


KEPT = given(
    lambda case: case.kept,
    Rule(
        "trainer.path",
        lambda case: case.trainer.path == "estimator",
        "{trainer.model} is a training that was kept for Keras",
        "set trainer.path: keras, or keras_custom_loop",
        depends=("trainer.model",),
    ),
    Rule(
        _STEPS,
        lambda case: 0 < (case.trainer.train_steps or 0) <= case.kept["step"] and {"step": case.kept["step"]},
        "{trainer.model} was kept at step {step}",
        "raise it: it counts from step 0",
        depends=("trainer.model",),
    ),
    Rule(
        "trainer.model",
        _modes_left_out,
        "{trainer.model} was kept without {modes}",
        "mend the model_fn in that mode, and keep its training again",
        "a training that evaluates and predicts",
    ),
    Rule(
        "trainer.distribution.eval.strategy",
        lambda case: case.distribution.eval.distributes and case.kept["uncut"] and {"why": case.kept["uncut"]},
        "{trainer.model} is evaluated on one device: {why}",
        "choose one_device",
        depends=("trainer.model",),
    ),
    conflict(
        "trainer.freeze",
        "trainer.model",
        lambda case: case.trainer.freeze,
        "the graph of a kept training trains as it is",
    ),
    of_strategy(STRATEGY, _one_copy, "{trainer.model} trains on one device: {why}", "choose one_device"),
)


def _warm_start(case: Case) -> Any:
    section = case.trainer.warm_start
    named = [key for key in ("weights", "checkpoint", "model", "blessed") if getattr(section, key) is not None]
    if len(named) != 1:
        why = f"{' and '.join(named)} are given" if named else "none of the four is given"
        return {
            "key": "",
            "why": why,
            "fit": "exactly one of weights, checkpoint, model and blessed",
            "fix": "name one",
        }
    if named == ["blessed"]:
        return None
    key, value = f".{named[0]}", getattr(section, named[0])
    if not section.source:
        why = "no weights are there" if os.path.lexists(value) else "there is no such file or folder"
        fix = "check the path: it is relative to the declaration's folder"
        return {"key": key, "why": why, "fit": _WEIGHTS[named[0]], "fix": fix}
    return None


def _takes_all(key: str, why: str) -> tuple[Rule, Rule]:
    exclude, prefix = f"{_WARM}.exclude", f"{_WARM}.prefix"
    return (
        conflict(f"{_WARM}.{key}", exclude, lambda case: case.trainer.warm_start.exclude, why),
        conflict(f"{_WARM}.{key}", prefix, lambda case: case.trainer.warm_start.prefix, why),
    )


def _of_days(key: str, otherwise: str, elsewhere: str) -> tuple[Rule, ...]:
    """Returns the rules of a key that takes over something of an earlier day."""
    return (
        Rule(
            key,
            lambda case: not (case.data.is_table and case.data.table().has_spans),
            "the data are not of days: no earlier one has a model",
            f"name the files of each day, data.csv: day-{{{{SPAN}}}}/*.csv; or {otherwise}",
        ),
        Rule(
            key,
            lambda case: case.target or is_address(case.data.table_path),
            "which days there are, and which models, is known of this machine's files and runs alone",
            f"{elsewhere}; or run it on this machine, on files that are here",
        ),
    )


FROZEN = given(
    lambda case: case.transform.analyzers is not None,
    *_of_days("transform.analyzers", "remove this line", "remove this line"),
)

WARM_START = given(
    lambda case: case.trainer.warm_start is not None,
    Rule(f"{_WARM}{{key}}", _warm_start, "{why}", "{fix}", "{fit}"),
    conflict(
        _WARM,
        "trainer.distribution.train.variable_partitioner",
        lambda case: case.train.variable_partitioner is not None,
        "a warm start does not read weights into sharded variables",
    ),
    *given(
        lambda case: case.trainer.warm_start.blessed,
        *_of_days(f"{_WARM}.blessed", "name a model or a checkpoint", "name a model"),
        conflict(f"{_WARM}.blessed", "tune", lambda case: case.tune is not None, "trials begin with initial weights"),
        conflict(
            f"{_WARM}.blessed",
            f"{_WARM}.resume",
            lambda case: case.trainer.warm_start.resume,
            "a new day begins at step 0",
        ),
        *_takes_all("blessed", "the optimizer's slots belong to the weights"),
    ),
    *given(
        lambda case: case.trainer.warm_start.resume,
        Rule(
            f"{_WARM}.resume",
            lambda case: case.trainer.model is None,
            "a module file decides where its checkpoints are",
            "remove resume; or pass them to the module's Estimator as warm_start_from",
            depends=CODE,
        ),
        conflict(f"{_WARM}.resume", "tune", lambda case: case.tune is not None, "trials begin at step 0"),
        Rule(
            f"{_WARM}.resume",
            lambda case: 0 < (case.trainer.train_steps or 0) <= case.trainer.warm_start.step,
            "the checkpoint is already at the last step to train, or later",
            "raise trainer.train_steps, which counts from step 0",
            depends=(_STEPS,),
        ),
        *_takes_all("resume", "a resumed training keeps all of its variables"),
        Rule(
            f"{_WARM}.resume",
            lambda case: case.trainer.warm_start.step < 0,
            "its name contains no step to resume from",
            "name a training's checkpoint, or a folder of some; or remove resume",
            "a checkpoint whose name ends with its step: model.ckpt-100",
        ),
    ),
)


def metric_rule(path: str, watched: Callable[[Case], Any]) -> Rule:
    """Returns the rule of a watched metric; `watched` returns the section at the path."""

    def find(case: Case) -> Any:
        known, model = METRICS_OF_TABLES.get(case.task, METRICS), case.trainer.model
        known += METRICS_OF_CANNED if case.task == BINARY and case.trainer.path == "estimator" else ()
        metric, near = watched(case).metric, nearest(watched(case).metric, known)
        meant = f"did you mean `{near}`? " if near else ""
        if model in names_of("trainer.model", bool(case.data.csv)) and metric not in known:
            why = f"the evaluation of {model} reports no `{metric}`"
            if case.task == REGRESSION:
                why = f"a regression of {model} is evaluated by its loss, and reports no `{metric}`"
            return {"why": why, "fix": f"{meant}choose one of {', '.join(known)}", "origin": "trainer.model"}
        if watched(case).better is not None:
            return None
        why = f"it is not clear from its name whether more or less of `{metric}` is better"
        return {"why": why, "fix": f"{meant}set {path}.mode to max or min", "origin": f"{path}.mode"}

    return Rule(f"{path}.metric", find, "{why}", "{fix}", depends=("{origin}", "trainer.module_file"))


def _deciding(key: str) -> tuple[Rule, ...]:
    path = f"trainer.{key}"
    return given(
        lambda case: getattr(case.trainer, key) is not None,
        Rule(
            path,
            lambda case: case.train.is_cluster and not case.distribution.evaluator,
            "it needs evaluations during training, and the processes of {train.strategy} only train",
            f"set {_EVALUATOR} to true, for a task that evaluates each checkpoint; or remove {path}",
            depends=(STRATEGY, _EVALUATOR),
        ),
        metric_rule(path, lambda case: getattr(case.trainer, key)),
    )


def _few_threads(case: Case) -> Any:
    threads, least = case.trainer.threads.inter_op, case.train.worker_count + 1
    return case.train.asynchronous and threads is not None and threads < least and {"least": least}


RUNTIME = (
    Rule(
        "trainer.threads.inter_op",
        _few_threads,
        "with {train.worker_count} workers, the servers of parameter_server would deadlock",
        "raise it, or remove it",
        "{least} or more, one more than the workers",
        (STRATEGY, "trainer.distribution.train.workers"),
    ),
)

TRAINING = (
    *CODE_AND_LENGTH,
    *NETWORK,
    *KEPT,
    *WARM_START,
    *FROZEN,
    *_deciding("keep_best"),
    *_deciding("early_stopping"),
    Rule(
        "trainer.profile.start_step",
        lambda case: case.trainer.profile and 0 < (case.trainer.train_steps or 0) <= case.trainer.profile.start_step,
        "training ends before the profile begins",
        f"lower it to less than {_STEPS}, {{trainer.train_steps}}, or train longer",
        depends=(_STEPS,),
    ),
    *RUNTIME,
)
