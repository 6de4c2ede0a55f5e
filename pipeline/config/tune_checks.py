"""Checks of the section `tune`: the declaration must be valid with each value of a range."""

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
_BEFORE = "it runs before the Tuner, which trains on its output"
_AFTER = "it evaluates, serves or pushes a model that is already trained"
# Section, or key -> why a Tuner does not vary it, and what to do.
_NOT_VARIED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("data", "transform"), (_BEFORE, _VARY)),
    **dict.fromkeys(("evaluator", "serving", "pusher"), (_AFTER, "remove it")),
    **dict.fromkeys(("beam", "deploy"), ("it affects how the pipeline runs, not the model", "remove it")),
    "name": ("it is the pipeline's name", "remove it"),
    "tune": ("it configures the tuning itself", "remove it"),
    "trainer.path": ("each path has a Trainer of its own", _VARY),
    **dict.fromkeys(CODE, ("a training's cache key covers the source of one model", _VARY)),
    "trainer.warm_start": ("a training's cache key covers its initial weights", _VARY),
    "trainer.distribution": (
        "it affects the speed of training, not the model",
        "measure it: `tfx-estimator bench strategies FILE`",
    ),
    "trainer.eval_steps": ("trials are compared on the same examples", "remove it"),
    "trainer.eval_batch_size": ("it does not affect the model", "remove it"),
}
_Known = tuple[str, str]


def check_tune(case: Case) -> list[Problem]:
    """Checks the section, and the declaration with the values of each range."""
    if case.tune is None:
        return []
    trial = _shortest_trial(case)
    found, known = [*broken(TUNE, case), *_too_short(case, trial)], _known(trial)
    for name, each in case.tune.ranges.items():
        if problem := _name(case, name):
            found.append(problem)
        elif _is_declared(case, name) and wrong_range(name, each) is None:
            found += _check_values(trial, name, each, known)
    return found


def _is_declared(case: Case, name: str) -> bool:
    """Returns whether a range is of a declared value, not of a name in the user's module file."""
    return name.startswith(f"{SECTION}.") or case.trainer.module_file is None


def _name(case: Case, name: str) -> Optional[Problem]:
    """Returns the problem of a range's name, independent of its values."""
    keys, file = tuple(name.split(".")), case.trainer.module_file

    def wrong(what: str, todo: str, expected: str = EXPECTED, depends: tuple[str, ...] = ()) -> Problem:
        return Problem(f"{RANGES}.{name}", what, expected, todo, depends=depends)

    for part, (why, todo) in _NOT_VARIED.items():
        if f"{name}.".startswith(f"{part}."):
            return wrong(f"a Tuner cannot vary it: {why}", todo.format(name=name))
    fields = (find_field(keys[:depth]) for depth in range(1, len(keys) + 1))
    if any(field is not None and field.operational for field in fields):
        return wrong("it affects how training runs, not the model", "remove it")
    if list(find_unread(case, [name])):
        in_file = "read it; or choose another name, which your code reads from fn_args.hyperparameters"
        todo = in_file if file else "remove it, or read it"
        return wrong(describe_unread(case.trainer, [name]), todo, "a value that the code reads", CODE)
    if not _is_declared(case, name) and not _reads_hyperparameters(file):
        what = "the module file does not read fn_args.hyperparameters, which would hold it"
        todo = "read the name from fn_args.hyperparameters['values'], or remove the range"
        return wrong(what, todo, "a name that it reads", CODE[:1])
    return None


def _reads_hyperparameters(module_file: str) -> bool:
    try:
        with open(module_file, "rb") as file:
            return b"hyperparameters" in file.read()
    except OSError:
        return True  # reported as a problem of the file


def _shortest_trial(case: Case) -> Case:
    steps = case.tune.hyperband.shortest(longest) if (longest := longest_trial(case)) else case.tune.train_steps
    return case.of({"tune": None, "trainer": case.trainer.in_trial(steps)})


def _too_short(case: Case, trial: Case) -> Iterator[Problem]:
    """Yields the problems that come from the few steps of the shortest trial."""
    steps, tune = trial.trainer.train_steps, case.tune
    if steps is None or steps == case.trainer.train_steps:
        return
    is_band = tune.strategy == HYPERBAND
    for problem in _new_problems(trial, _known(case.of({"tune": None}))):
        which = "the shortest trials" if is_band else "trials"
        yield Problem(
            "tune.hyperband.min_steps" if is_band else "tune.train_steps",
            f"{which} have {steps:,} steps; with so few, {problem.path}: {problem.what}",
            "enough steps for the declared training",
            f"raise it, or lower {problem.path}",
            value=str(tune.hyperband.min_steps if is_band else steps),
            depends=(problem.path, "tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def _check_values(trial: Case, name: str, each: Range, known: set[_Known]) -> Iterator[Problem]:
    """Yields the problems of the declaration with each value, or each end, of a range."""
    path, shown = f"{RANGES}.{name}", str(each)
    for value in each.extremes:
        for problem in problems_with(trial, {name: value}, known):
            what, todo = problem.what, problem.todo
            if problem.path != name:
                what, todo = f"with it, {problem.path}: {what}", f"choose other values; or {todo}"
            depends = (name, problem.path, *problem.depends)
            yield Problem(path, f"{inline(value)}: {what}", problem.expected, todo, value=shown, depends=depends)


def problems_with(case: Case, tuned: Mapping[str, Any], known: Optional[set[_Known]] = None) -> list[Problem]:
    """Returns the problems of a declaration with other values; `known` are those without them, if computed."""
    values, problems = put(case.declaration.dict(), tuned)
    if problems:
        return problems
    try:
        varied = Case(Declaration.parse_obj(values), case.search_paths, case.target)
    except ValuesError as error:
        return [explain(each, values, lambda path: "") for each in error.found]
    return _new_problems(varied, _known(case) if known is None else known)


def _new_problems(varied: Case, known: set[_Known]) -> list[Problem]:
    return [problem for problem in check(varied) if (problem.path, problem.what) not in known]


def _known(case: Case) -> set[_Known]:
    return {(problem.path, problem.what) for problem in check(case)}


def external_cluster_error() -> DeclarationError:
    """Returns the error of tuning in an external cluster, whose tasks all take part in one training."""
    return DeclarationError(
        "tune: this process is a task of a cluster (TF_CONFIG, srun), whose other tasks take no part in trials",
        expected="tuning outside of a cluster; its trials may start their own clusters on this machine",
        todo="tune alone first; then declare the best values, and train in the cluster with --set tune=null",
    )
