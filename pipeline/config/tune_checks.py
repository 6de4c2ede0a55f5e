"""Checks of the section `tune`: a declaration that has a value of a range must be right as one without a Tuner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.best import METRICS
from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.explain import explain, find_field
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.config.notes import find_unread, word_unread
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.put_values import SECTION, put
from tfx_estimator.pipeline.config.section import ValuesError
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range
from tfx_estimator.pipeline.config.tune_ranges import EXPECTED, check_range, check_section, combinations
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

_VARY = "compare it: `tfx-estimator compare FILE --vary {name}=VALUE,VALUE`"
_BEFORE = "it is at work before the Tuner, which trains on what it made"
_AFTER = "it judges or moves a model that is trained already"
_RUNS = "it decides how the pipeline runs, and no model", "remove it"
# Section, or key -> why a Tuner does not vary it, and what to do.
_NOT_VARIED: dict[str, tuple[str, str]] = {
    "data": (_BEFORE, _VARY),
    "transform": (_BEFORE, _VARY),
    "evaluator": (_AFTER, "remove it"),
    "pusher": (_AFTER, "remove it"),
    "beam": _RUNS,
    "deploy": _RUNS,
    "name": ("it is the pipeline's name", "remove it"),
    "tune": ("it is the tuning's own", "remove it"),
    "trainer.path": ("each way of training is a Trainer of its own", _VARY),
    "trainer.model": ("the key of a finished training holds the source of one model", _VARY),
    "trainer.module_file": ("the key of a finished training holds the source of one module", _VARY),
    "trainer.warm_start": ("the key of a finished training holds the weights that it begins with", _VARY),
    "trainer.distribution": (
        "it decides how fast a model is trained, not which",
        "measure it: `tfx-estimator bench strategies FILE`",
    ),
    "trainer.eval_steps": ("trials are compared by the same examples", "remove it"),
    "trainer.eval_batch_size": ("it changes no model", "remove it"),
}
_Told = tuple[str, str]


def check_tune(declaration: Declaration, search_paths: Sequence[str]) -> list[Problem]:
    """Checks the section, and values of each range by the declaration's own checks."""
    tune = declaration.tune
    if tune is None:
        return []
    trial = _of_a_trial(declaration)
    found = [*_objective(declaration), *_steps(declaration), *_too_short(declaration, trial, search_paths)]
    told = {problem.path for problem in found}
    found += [problem for problem in check_section(tune) if problem.path not in told]
    known = _known(trial, search_paths)
    for name, each in tune.ranges.items():
        if problem := _name(declaration, name, search_paths):
            found.append(problem)
        elif _is_declared(declaration, name) and check_range(name, each) is None:
            found += _check_values(trial, name, each, search_paths, known)
    return found


def _is_declared(declaration: Declaration, name: str) -> bool:
    """Tells a value of the declaration from a name of the user's module file."""
    return name.startswith(f"{SECTION}.") or declaration.trainer.module_file is None


def _name(declaration: Declaration, name: str, search_paths: Sequence[str]) -> Optional[Problem]:
    """What is wrong with what is to be varied, whatever its values."""
    path, trainer = f"{RANGES}.{name}", declaration.trainer
    for part, (why, todo) in _NOT_VARIED.items():
        if f"{name}.".startswith(f"{part}."):
            return Problem(path, f"a Tuner cannot vary it: {why}", EXPECTED, todo.format(name=name))
    keys = tuple(name.split("."))
    fields = (find_field(keys[:depth]) for depth in range(1, len(keys) + 1))
    if any(field is not None and field.operational for field in fields):
        return Problem(path, "it decides how training runs, and no model", EXPECTED, "remove it")
    assert declaration.tune is not None
    if inside := next((other for other in declaration.tune.ranges if other.startswith(f"{name}.")), None):
        # Which of both is put in first would decide what is tried.
        what = f"{inside} is a part of it, and varied as well"
        return Problem(path, what, "one of the two", "remove one of them", depends=(f"{RANGES}.{inside}",))
    if list(find_unread(declaration, [name], search_paths)):
        todo = "read it; or give it a name of its own, which your code takes out of fn_args.hyperparameters"
        return Problem(
            path,
            word_unread(trainer, [name]),
            "a value that the code reads",
            todo if trainer.module_file else "remove it, or read it",
            depends=("trainer.model", "trainer.module_file"),
        )
    if not _is_declared(declaration, name) and trainer.module_file and not _reads_hyperparameters(trainer.module_file):
        return Problem(
            path,
            "the module file does not read fn_args.hyperparameters, where it would be",
            "a name that it reads",
            "let it read the name out of fn_args.hyperparameters['values'], or remove the range",
            depends=("trainer.module_file",),
        )
    return None


def _reads_hyperparameters(module_file: str) -> bool:
    try:
        with open(module_file, "rb") as file:
            return b"hyperparameters" in file.read()
    except OSError:
        return True  # told as a problem of the file


def _objective(declaration: Declaration) -> Iterator[Problem]:
    trainer, tune = declaration.trainer, declaration.tune
    assert tune is not None
    metric = tune.objective.metric
    if trainer.model in SHORT_NAMES["trainer.model"] and metric not in METRICS:
        near = nearest(metric, METRICS)
        yield Problem(
            "tune.objective.metric",
            f"the evaluation of {trainer.model} reports no `{metric}`",
            f"one of {', '.join(METRICS)}",
            f"did you mean `{near}`?" if near else "choose one of them",
            value=metric,
            depends=("trainer.model", "trainer.module_file"),
        )
    if trainer.module_file and (functions_of(trainer.module_file) or ("",))[0] == RUN_FN:
        yield Problem(
            "tune",
            "a run_fn evaluates by itself, and tells nobody what it found: no trial could be judged",
            "a trainer_fn, or trainer.model",
            "remove `tune`; TFX's own Tuner, with a tuner_fn, can tune inside of a run_fn",
            depends=("trainer.module_file",),
        )


def _steps(declaration: Declaration) -> Iterator[Problem]:
    trainer, tune = declaration.trainer, declaration.tune
    assert tune is not None
    band = tune.hyperband
    lengths = [name for name in ("trainer.train_steps", "trainer.train_epochs") if name in tune.ranges]
    own = "tune.hyperband" if tune.strategy == HYPERBAND else "tune.train_steps" if tune.train_steps else ""
    if own and lengths:
        what = f"{own} says how long a trial trains"
        yield Problem(f"{RANGES}.{lengths[0]}", what, "one of the two", "remove one of them", depends=(own,))
    steps = band.max_steps or trainer.train_steps
    if tune.strategy != HYPERBAND or not steps:
        return
    count = None if list(check_section(tune)) else combinations(tune.ranges)
    if count is not None and count < (need := band.begun(steps)):
        yield Problem(
            "tune.strategy",
            f"hyperband begins {need} different trials, and the ranges hold {count} combinations: none would go on",
            "random, or ranges with more values",
            "set tune.strategy to random",
            value=HYPERBAND,
            depends=(RANGES, "tune.hyperband"),
        )
    if band.rounds(steps) < 2:
        yield Problem(
            "tune.hyperband.min_steps",
            f"no trial would go on: the longest have {steps:,} steps, and the shortest, times the factor, more",
            f"at most {steps // band.factor:,}",
            "lower it, or train longer",
            value=str(band.min_steps),
            depends=("tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def _of_a_trial(declaration: Declaration) -> Declaration:
    """Returns what the shortest of the trials trains, but for its values."""
    trainer, tune = declaration.trainer, declaration.tune
    assert tune is not None
    steps = tune.train_steps
    if tune.strategy == HYPERBAND and (longest := tune.hyperband.max_steps or trainer.train_steps):
        steps = tune.hyperband.shortest(longest)
    return declaration.copy(update={"tune": None, "trainer": trainer.in_trial(steps)})


def _too_short(declaration: Declaration, trial: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the steps of the shortest trial."""
    steps, tune = trial.trainer.train_steps, declaration.tune
    assert tune is not None
    if steps is None or steps == declaration.trainer.train_steps:
        return
    is_band = tune.strategy == HYPERBAND
    for problem in _new_problems(trial, search_paths, _known(declaration.copy(update={"tune": None}), search_paths)):
        said = f"the shortest trials have {steps:,} steps" if is_band else "a trial has no more steps"
        yield Problem(
            "tune.hyperband.min_steps" if is_band else "tune.train_steps",
            f"{said}; with so many, {problem.path}: {problem.what}",
            "enough of them for what a training is declared to do",
            f"raise it, or lower {problem.path}",
            value=str(tune.hyperband.min_steps if is_band else steps),
            depends=(problem.path, "tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def _check_values(
    declaration: Declaration, name: str, each: Range, search_paths: Sequence[str], known: set[_Told]
) -> Iterator[Problem]:
    """The problems of a declaration that has one of the values, or of the ends."""
    for value in each.extremes:
        for problem in problems_with(declaration, {name: value}, search_paths, known):
            what, todo = problem.what, problem.todo
            if problem.path != name:
                what, todo = f"with it, {problem.path}: {what}", f"choose other values; or {todo}"
            yield Problem(
                f"{RANGES}.{name}",
                f"{inline(value)}: {what}",
                problem.expected,
                todo,
                value=str(each),
                depends=(name, problem.path, *problem.depends),
            )


def problems_with(
    declaration: Declaration,
    tuned: Mapping[str, Any],
    search_paths: Sequence[str] = (),
    known: Optional[set[_Told]] = None,
) -> list[Problem]:
    """Returns what is wrong with a declaration that has other values.

    Args:
        known: What is wrong without them; None is found out.
    """
    values, problems = put(declaration.dict(), tuned)
    if problems:
        return problems
    try:
        varied = Declaration.parse_obj(values)
    except ValuesError as error:
        return [explain(each, values, lambda path: "") for each in error.found]
    return _new_problems(varied, search_paths, _known(declaration, search_paths) if known is None else known)


def _new_problems(varied: Declaration, search_paths: Sequence[str], known: set[_Told]) -> list[Problem]:
    return [problem for problem in check(varied, search_paths) if (problem.path, problem.what) not in known]


def _known(declaration: Declaration, search_paths: Sequence[str]) -> set[_Told]:
    return {(problem.path, problem.what) for problem in check(declaration, search_paths)}


def note_tune(declaration: Declaration) -> Iterator[str]:
    """Says what the user should know of the section."""
    tune = declaration.tune
    if tune is not None and tune.strategy == HYPERBAND and declaration.trainer.optimizer.ends_with_training:
        yield (
            "tune.strategy hyperband: a trial that goes on does so from its checkpoint, which was trained with the "
            f"schedule {declaration.trainer.optimizer.schedule} of fewer steps"
        )


def refuse_others_cluster() -> DeclarationError:
    """Returns the error of a tuning in somebody else's cluster, whose tasks all train one training."""
    return DeclarationError(
        "tune: this process is a task of a cluster (TF_CONFIG, srun), whose other tasks know nothing of trials",
        expected="a tuning outside of a cluster; its trials may start clusters of their own on this machine",
        todo="tune alone first; then declare the best values, and train in the cluster with --set tune=null",
    )
