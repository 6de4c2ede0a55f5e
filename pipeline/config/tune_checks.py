"""Checks of the section `tune`: ranges that no training takes, or that a Tuner cannot vary, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, get_origin

from pydantic.v1 import BaseModel
from pydantic.v1.fields import ModelField

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.best import METRICS
from tfx_estimator.pipeline.config.builtin import SHORT_NAMES
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.explain import all_keys, find_field
from tfx_estimator.pipeline.config.kinds import is_class
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.put_values import SECTION
from tfx_estimator.pipeline.config.tune import BAYESIAN, HYPERBAND, RANGES, Range
from tfx_estimator.pipeline.config.tune_ranges import EXPECTED, check_range, check_section, combinations, item_type
from tfx_estimator.pipeline.config.tune_values import (
    check_together,
    check_values,
    new_problems,
    note_together,
    of_a_trial,
)
from tfx_estimator.pipeline.config.unread import find_unread, keys_of
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

_VARY = "compare it: `tfx-estimator compare FILE --vary {name}=VALUE,VALUE`"
_BEFORE = "it is at work before the Tuner, which trains on what it made"
_AFTER = "it judges or moves a model that is trained already"
# Section, or key -> why a Tuner does not vary it, and what to do.
_NOT_VARIED: dict[str, tuple[str, str]] = {
    "data": (_BEFORE, _VARY),
    "transform": (_BEFORE, _VARY),
    "evaluator": (_AFTER, "remove it"),
    "pusher": (_AFTER, "remove it"),
    "beam": ("it decides how the pipeline runs, and no model", "remove it"),
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


def check_tune(declaration: Declaration, search_paths: Sequence[str]) -> list[Problem]:
    """Checks the section: values of each range, and some of all ranges together, by the declaration's own checks.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    tune = declaration.tune
    if tune is None:
        return []
    alone = of_a_trial(declaration)
    found = [*_objective(declaration), *_steps(declaration), *_too_short(declaration, alone, search_paths)]
    told = {problem.path for problem in found}
    found += [problem for problem in check_section(tune) if problem.path not in told]
    for name, each in tune.ranges.items():
        if problem := _name(declaration, name, each, search_paths) or _overlap(name, tune.ranges):
            found.append(problem)
        elif name.startswith(f"{SECTION}.") and not list(check_range(name, each)):
            found += check_values(alone, name, each, search_paths)
    return found or list(check_together(alone, tune.ranges, search_paths))


def _name(declaration: Declaration, name: str, each: Range, search_paths: Sequence[str]) -> Optional[Problem]:
    """What is wrong with what is to be varied."""
    path, trainer = f"{RANGES}.{name}", declaration.trainer
    for part, (why, todo) in _NOT_VARIED.items():
        if name == part or name.startswith(f"{part}."):
            return Problem(path, f"a Tuner cannot vary it: {why}", EXPECTED, todo.format(name=name))
    if not name.startswith(f"{SECTION}."):
        return _free_name(declaration, name)
    field = find_field(tuple(name.split(".")))
    if field is None or (keys := _known_below(field, name)) is None:
        return Problem(path, "there is no such value", EXPECTED, _instead(declaration, name), depends=(name,))
    if whole := _undeclared(declaration, name):
        return Problem(path, f"{whole} is null, and has no items", "an item of the declared list, counted from 0",
                       f"declare the list; or vary all of it: {whole}: [[…], […]]", depends=(whole,))  # fmt: skip
    if keys and not _are_sections(field, each.values):
        expected = f"one of {', '.join(keys)}; or a list of whole sections"
        return Problem(path, "it is a section, not a value", expected, f"name {name}.{keys[0]}")
    if _is_operational(name):
        return Problem(path, "it decides how training runs, and no model", EXPECTED, "remove it")
    if trainer.module_file is not None and keys_of(name):
        todo = "give it a name of its own, which your code takes out of fn_args.hyperparameters"
        return Problem(path, "a module file brings its own", "a value that it reads", todo,
                       depends=("trainer.module_file",))  # fmt: skip
    if list(find_unread(declaration, [name], search_paths)):
        return Problem(path, f"{trainer.model} does not take it out of params", "a value that it reads",
                       "remove it, or read it", depends=("trainer.model",))  # fmt: skip
    return None


def _free_name(declaration: Declaration, name: str) -> Optional[Problem]:
    """What is wrong with a name that is for the user's module file."""
    path, file = f"{RANGES}.{name}", declaration.trainer.module_file
    if file is None:
        known = [".".join(key) for key in all_keys() if key[0] == SECTION]
        inside = [key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]]
        near = inside[0] if inside else nearest(f"{SECTION}.{name}", known)
        todo = f"did you mean `{near}`?" if near else "see `tfx-estimator schema`"
        return Problem(path, "there is no such value", EXPECTED, todo)
    try:
        with open(file, encoding="utf-8") as text:
            reads = "hyperparameters" in text.read()
    except (OSError, UnicodeDecodeError):
        return None  # told as a problem of the file
    if reads:
        return None
    todo = "let it read the name out of fn_args.hyperparameters['values'], or remove the range"
    return Problem(path, "the module file does not read fn_args.hyperparameters, where it would be", "a name that it "
                   "reads", todo, depends=("trainer.module_file",))  # fmt: skip


def _known_below(field: ModelField, name: str) -> Optional[list[str]]:
    """The keys of a section; none of a value; None where there is no such value."""
    if is_class(field.outer_type_, BaseModel):
        return list(field.outer_type_.__fields__)
    item = name.rpartition(".")[0].endswith(f".{field.name}") and item_type(field.outer_type_, name)
    if item and is_class(item, BaseModel):
        return list(item.__fields__)
    # A plain value has no keys below it. A free mapping and an item of a list may have any.
    if item or field.name == name.rpartition(".")[2] or name.startswith(f"{SECTION}.params."):
        return []
    return None


def _are_sections(field: ModelField, values: Sequence[Any]) -> bool:
    """Are they what a section may be as a whole: mappings, null, or its short form."""
    short = "short_form" in field.field_info.extra
    return bool(values) and all(short or value is None or isinstance(value, Mapping) for value in values)


def _instead(declaration: Declaration, name: str) -> str:
    """What to name in place of what there is not."""
    parts, known = name.split("."), [".".join(key) for key in all_keys() if key[0] == SECTION]
    for count in range(len(parts) - 1, 1, -1):
        whole = ".".join(parts[:count])
        field = find_field(tuple(parts[:count]))
        if field is None or field.name != parts[count - 1] or not item_type(field.outer_type_, f"{whole}.0"):
            continue
        inside, items = parts[count:], _held(declaration, parts[:count]) or ()
        at = [str(index) for index, item in enumerate(items) if isinstance(item, dict) and inside[0] in item]
        if inside[0].isdigit():
            at, inside = inside[:1], inside[1:]
        near = nearest(".".join([whole, *inside]), [key for key in known if key.startswith(f"{whole}.")])
        if at and near:
            return f"did you mean `{whole}.{at[0]}.{near.removeprefix(f'{whole}.')}`?"
        return f"name {whole}, with a whole list for each value: [[…], […]]; or an item of the declared one, {whole}.0"
    near = nearest(name, [key for key in known if key != name])
    return f"did you mean `{near}`?" if near else "see `tfx-estimator schema`"


def _undeclared(declaration: Declaration, name: str) -> Optional[str]:
    """The list whose item is meant, and of which nothing is declared; of a mapping keys may be new."""
    parts = name.split(".")
    for count in (index for index, part in enumerate(parts) if part.isdigit()):
        field = find_field(tuple(parts[:count]))
        is_list = field is not None and get_origin(field.outer_type_) is tuple
        if is_list and _held(declaration, parts[:count]) is None:
            return ".".join(parts[:count])
    return None


def _held(declaration: Declaration, path: Sequence[str]) -> Any:
    """What is declared there; None where nothing is."""
    held: Any = declaration.dict()
    for key in path:
        held = held.get(key) if isinstance(held, dict) else None
    return held


def _overlap(name: str, ranges: Mapping[str, Range]) -> Optional[Problem]:
    """What is wrong where a part of it is varied by itself: which of both comes first decided what is tried."""
    inside = next((other for other in ranges if other.startswith(f"{name}.")), None)
    if inside is None or not name.startswith(f"{SECTION}."):
        return None
    return Problem(f"{RANGES}.{name}", f"{inside} is a part of it, and varied as well", "one of the two",
                   "remove one of them", depends=(f"{RANGES}.{inside}",))  # fmt: skip


def _is_operational(name: str) -> bool:
    parts = name.split(".")
    fields = [find_field(tuple(parts[:count])) for count in range(1, len(parts) + 1)]
    return any(field is not None and field.field_info.extra.get("operational") for field in fields)


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
    lengths = [name for name in ("trainer.train_steps", "trainer.train_epochs") if name in tune.ranges]
    own = "tune.hyperband" if tune.strategy == HYPERBAND else "tune.train_steps" if tune.train_steps else ""
    if own and lengths:
        what = f"{own} says how long a trial trains"
        yield Problem(f"{RANGES}.{lengths[0]}", what, "one of the two", "remove one of them", depends=(own,))
    steps = tune.hyperband.max_steps or trainer.train_steps
    count = combinations(tune.ranges) if not list(check_section(tune)) else None
    if tune.strategy == HYPERBAND and steps and count is not None and count < (need := tune.hyperband.begun(steps)):
        yield Problem(
            "tune.strategy",
            f"hyperband begins {need} different trials, and the ranges hold {count} combinations: none would go on",
            "random, or ranges with more values",
            "set tune.strategy to random",
            value=HYPERBAND,
            depends=(RANGES, "tune.hyperband"),
        )
    if tune.strategy == HYPERBAND and steps and tune.hyperband.rounds(steps) < 2:
        yield Problem(
            "tune.hyperband.min_steps",
            f"no trial would go on: the longest have {steps:,} steps, and the shortest, times the factor, more",
            f"at most {steps // tune.hyperband.factor:,}",
            "lower it, or train longer",
            value=str(tune.hyperband.min_steps),
            depends=("tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def _too_short(declaration: Declaration, trial: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the steps of the shortest trial."""
    steps, tune = trial.trainer.train_steps, declaration.tune
    assert tune is not None
    if steps is None or steps == declaration.trainer.train_steps:
        return
    is_band = tune.strategy == HYPERBAND
    for problem in new_problems(declaration.copy(update={"tune": None}), trial, search_paths):
        said = f"the shortest trials have {steps:,} steps" if is_band else "a trial has no more steps"
        yield Problem(
            "tune.hyperband.min_steps" if is_band else "tune.train_steps",
            f"{said}; with so many, {problem.path}: {problem.what}",
            "enough of them for what a training is declared to do",
            f"raise it, or lower {problem.path}",
            value=str(tune.hyperband.min_steps if is_band else steps),
            depends=(problem.path, "tune.hyperband.max_steps", "tune.hyperband.factor", "trainer.train_steps"),
        )


def note_tune(declaration: Declaration) -> Iterator[str]:
    """Says what the user should know of the section."""
    tune = declaration.tune
    if tune is None:
        return
    count = combinations(tune.ranges)
    if tune.trials and count is not None and count < tune.trials:
        yield f"tune.max_trials is {tune.trials}, and the ranges hold {count} combinations: there are as many trials"
    if tune.strategy == BAYESIAN and tune.trials and tune.trials <= tune.at_random:
        yield (
            f"tune.strategy bayesian begins with {tune.at_random} trials at random, 3 for each range: with "
            f"max_trials {tune.trials} there are no others"
        )
    yield from note_together(of_a_trial(declaration), tune.ranges)
    if tune.strategy == HYPERBAND and declaration.trainer.optimizer.ends_with_training:
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
