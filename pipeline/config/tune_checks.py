"""Checks of the section `tune`: a declaration that has a value of a range must be right as one without a Tuner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.explain import explain, find_field
from tfx_estimator.pipeline.config.notes import describe_unread, find_unread
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.put_values import SECTION, put
from tfx_estimator.pipeline.config.rules.rule import CODE, Case, broken
from tfx_estimator.pipeline.config.rules.tune import EXPECTED, TUNE, longest_trial, wrong_range
from tfx_estimator.pipeline.config.section import ValuesError
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range
from tfx_estimator.pipeline.config.yaml_text import inline

_VARY = "compare it: `tfx-estimator compare FILE --vary {name}=VALUE,VALUE`"
_BEFORE = "it is at work before the Tuner, which trains on what it made"
_AFTER = "it judges, serves or moves a model that is trained already"
# Section, or key -> why a Tuner does not vary it, and what to do.
_NOT_VARIED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("data", "transform"), (_BEFORE, _VARY)),
    **dict.fromkeys(("evaluator", "serving", "pusher"), (_AFTER, "remove it")),
    **dict.fromkeys(("beam", "deploy"), ("it decides how the pipeline runs, and no model", "remove it")),
    "name": ("it is the pipeline's name", "remove it"),
    "tune": ("it is the tuning's own", "remove it"),
    "trainer.path": ("each way of training is a Trainer of its own", _VARY),
    **dict.fromkeys(CODE, ("the key of a finished training holds the source of one model", _VARY)),
    "trainer.warm_start": ("the key of a finished training holds the weights that it begins with", _VARY),
    "trainer.distribution": (
        "it decides how fast a model is trained, not which",
        "measure it: `tfx-estimator bench strategies FILE`",
    ),
    "trainer.eval_steps": ("trials are compared by the same examples", "remove it"),
    "trainer.eval_batch_size": ("it changes no model", "remove it"),
}
_Told = tuple[str, str]


def check_tune(case: Case) -> list[Problem]:
    """Checks the section, and values of each range by the declaration's own checks."""
    if case.tune is None:
        return []
    trial = _of_a_trial(case)
    found, known = [*broken(TUNE, case), *_too_short(case, trial)], _known(trial)
    for name, each in case.tune.ranges.items():
        if problem := _name(case, name):
            found.append(problem)
        elif _is_declared(case, name) and wrong_range(name, each) is None:
            found += _check_values(trial, name, each, known)
    return found


def _is_declared(case: Case, name: str) -> bool:
    """Tells a value of the declaration from a name of the user's module file."""
    return name.startswith(f"{SECTION}.") or case.trainer.module_file is None


def _name(case: Case, name: str) -> Optional[Problem]:
    """What is wrong with what is to be varied, whatever its values."""
    keys, file = tuple(name.split(".")), case.trainer.module_file

    def wrong(what: str, todo: str, expected: str = EXPECTED, depends: tuple[str, ...] = ()) -> Problem:
        return Problem(f"{RANGES}.{name}", what, expected, todo, depends=depends)

    for part, (why, todo) in _NOT_VARIED.items():
        if f"{name}.".startswith(f"{part}."):
            return wrong(f"a Tuner cannot vary it: {why}", todo.format(name=name))
    fields = (find_field(keys[:depth]) for depth in range(1, len(keys) + 1))
    if any(field is not None and field.operational for field in fields):
        return wrong("it decides how training runs, and no model", "remove it")
    if inside := next((other for other in case.tune.ranges if other.startswith(f"{name}.")), None):
        # Which of both is put in first would decide what is tried.
        what = f"{inside} is a part of it, and varied as well"
        return wrong(what, "remove one of them", "one of the two", (f"{RANGES}.{inside}",))
    if list(find_unread(case, [name])):
        own_name = "read it; or give it a name of its own, which your code takes out of fn_args.hyperparameters"
        todo = own_name if file else "remove it, or read it"
        return wrong(describe_unread(case.trainer, [name]), todo, "a value that the code reads", CODE)
    if not _is_declared(case, name) and not _reads_hyperparameters(file):
        what = "the module file does not read fn_args.hyperparameters, where it would be"
        todo = "let it read the name out of fn_args.hyperparameters['values'], or remove the range"
        return wrong(what, todo, "a name that it reads", CODE[:1])
    return None


def _reads_hyperparameters(module_file: str) -> bool:
    try:
        with open(module_file, "rb") as file:
            return b"hyperparameters" in file.read()
    except OSError:
        return True  # told as a problem of the file


def _of_a_trial(case: Case) -> Case:
    """What the shortest of the trials trains, but for its values."""
    steps = case.tune.hyperband.shortest(longest) if (longest := longest_trial(case)) else case.tune.train_steps
    return case.of({"tune": None, "trainer": case.trainer.in_trial(steps)})


def _too_short(case: Case, trial: Case) -> Iterator[Problem]:
    """What is wrong with the steps of the shortest trial."""
    steps, tune = trial.trainer.train_steps, case.tune
    if steps is None or steps == case.trainer.train_steps:
        return
    is_band = tune.strategy == HYPERBAND
    for problem in _new_problems(trial, _known(case.of({"tune": None}))):
        said = f"the shortest trials have {steps:,} steps" if is_band else "a trial has no more steps"
        yield Problem(
            "tune.hyperband.min_steps" if is_band else "tune.train_steps",
            f"{said}; with so many, {problem.path}: {problem.what}",
            "enough of them for what a training is declared to do",
            f"raise it, or lower {problem.path}",
            value=str(tune.hyperband.min_steps if is_band else steps),
            depends=(problem.path, "tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def _check_values(trial: Case, name: str, each: Range, known: set[_Told]) -> Iterator[Problem]:
    """The problems of a declaration that has one of the values, or of the ends."""
    path, shown = f"{RANGES}.{name}", str(each)
    for value in each.extremes:
        for problem in problems_with(trial, {name: value}, known):
            what, todo = problem.what, problem.todo
            if problem.path != name:
                what, todo = f"with it, {problem.path}: {what}", f"choose other values; or {todo}"
            depends = (name, problem.path, *problem.depends)
            yield Problem(path, f"{inline(value)}: {what}", problem.expected, todo, value=shown, depends=depends)


def problems_with(case: Case, tuned: Mapping[str, Any], known: Optional[set[_Told]] = None) -> list[Problem]:
    """Returns what is wrong with a declaration that has other values; `known` is what is without them, if found out."""
    values, problems = put(case.declaration.dict(), tuned)
    if problems:
        return problems
    try:
        varied = Case(Declaration.parse_obj(values), case.search_paths, case.target)
    except ValuesError as error:
        return [explain(each, values, lambda path: "") for each in error.found]
    return _new_problems(varied, _known(case) if known is None else known)


def _new_problems(varied: Case, known: set[_Told]) -> list[Problem]:
    return [problem for problem in check(varied) if (problem.path, problem.what) not in known]


def _known(case: Case) -> set[_Told]:
    return {(problem.path, problem.what) for problem in check(case)}


def external_cluster_error() -> DeclarationError:
    """Returns the error of a tuning in somebody else's cluster, whose tasks all train one training."""
    return DeclarationError(
        "tune: this process is a task of a cluster (TF_CONFIG, srun), whose other tasks know nothing of trials",
        expected="a tuning outside of a cluster; its trials may start clusters of their own on this machine",
        todo="tune alone first; then declare the best values, and train in the cluster with --set tune=null",
    )
