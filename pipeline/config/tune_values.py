"""What is tried of a tuning before it: values of its ranges, alone and together, against the whole declaration."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from pydantic.v1 import ValidationError

from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.explain import explain
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.put_values import SECTION, put
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range
from tfx_estimator.pipeline.config.tune_ranges import checked_values
from tfx_estimator.pipeline.config.yaml_text import inline

_Told = tuple[str, str]
# Combinations that are tried; fewer are tried all.
_MOST = 12


def of_a_trial(declaration: Declaration) -> Declaration:
    """Returns what the shortest of the trials trains, but for its values.

    Args:
        declaration: Typed values, with `tune`.
    """
    trainer, tune = declaration.trainer, declaration.tune
    assert tune is not None
    steps = tune.train_steps
    if tune.strategy == HYPERBAND and (longest := tune.hyperband.max_steps or trainer.train_steps):
        steps = tune.hyperband.shortest(longest)
    return declaration.copy(update={"tune": None, "trainer": trainer.in_trial(steps)})


def check_values(declaration: Declaration, name: str, each: Range, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks a declaration that has one of the values of a range, each of those that are tried.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems; of numbers between two ends one of a kind, which others of them have as well.
    """
    told: set[_Told] = set()
    known = _known(declaration, search_paths)
    for value in checked_values(name, each):
        for problem in problems_with(declaration, {name: value}, search_paths, known):
            kind = _key_of(problem) if each.values or value in each.extremes else (problem.path, "")
            if kind in told:
                continue
            told |= {kind, (problem.path, "")}
            what = problem.what if problem.path == name else f"with it, {problem.path}: {problem.what}"
            todo = problem.todo if problem.path == name else f"choose other values; or {problem.todo}"
            if not (each.values or value in each.extremes):
                todo = f"choose a step that leaves such values out, or a list: [value, value]; or {problem.todo}"
            yield Problem(
                f"{RANGES}.{name}",
                f"{inline(value)}: {what}",
                problem.expected,
                todo,
                value=str(each),
                depends=(name, problem.path, *problem.depends),
            )


def check_together(
    declaration: Declaration, ranges: Mapping[str, Range], search_paths: Sequence[str]
) -> Iterator[Problem]:
    """Checks values of all ranges together: some of the combinations, or all where there are few.

    Args:
        ranges: By name, each without a problem of its own.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        A problem where all of them are few, and none can be trained; else `note_together` says it.
    """
    tried = _together(declaration, ranges, search_paths)
    drawn = math.prod(map(len, _tried(ranges).values())) > len(tried)
    if not tried or drawn or not all(problem for _, problem in tried):
        return
    values, problem = tried[0]
    assert problem is not None
    yield Problem(
        RANGES,
        f"values that do not go together: with {_listed(values)}, {problem.path}: {problem.what}; "
        f"{len(tried)} combinations were checked, and none can be trained",
        problem.expected,
        f"remove one of the ranges, or vary whole sections; or {problem.todo}",
        depends=(*values, problem.path, *problem.depends),
    )


def note_together(declaration: Declaration, ranges: Mapping[str, Range]) -> Iterator[str]:
    """Says that some of the combinations cannot be trained."""
    tried = _together(declaration, ranges, ())
    failing = [(values, problem) for values, problem in tried if problem is not None]
    if failing:
        values, problem = failing[0]
        yield (
            f"tune: of {len(tried)} combinations that were checked, {len(failing)} cannot be trained, and are trials "
            f"that fail: with {_listed(values)}, {problem.path}: {problem.what}; vary whole sections to leave them out"
        )


def _together(
    declaration: Declaration, ranges: Mapping[str, Range], search_paths: Sequence[str]
) -> list[tuple[Mapping[str, Any], Optional[Problem]]]:
    """The combinations that are tried, and what is first wrong with each."""
    tried = _tried(ranges)
    if len(tried) < 2:
        return []
    if math.prod(map(len, tried.values())) <= _MOST:
        chosen = list(itertools.product(*tried.values()))
    else:
        # The same ones each time.
        drawn = random.Random(0)
        chosen = [tuple(each[place] for each in tried.values()) for place in (0, -1)]
        chosen += [tuple(map(drawn.choice, tried.values())) for _ in range(_MOST - len(chosen))]
    known = _known(declaration, search_paths)
    combinations = [dict(zip(tried, values)) for values in chosen]
    return [(each, next(iter(problems_with(declaration, each, search_paths, known)), None)) for each in combinations]


def _tried(ranges: Mapping[str, Range]) -> dict[str, tuple[Any, ...]]:
    return {name: checked_values(name, each) for name, each in ranges.items() if name.startswith(f"{SECTION}.")}


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix(f'{SECTION}.')} {inline(value)}" for name, value in values.items())


def problems_with(
    declaration: Declaration,
    tuned: Mapping[str, Any],
    search_paths: Sequence[str] = (),
    known: Optional[set[_Told]] = None,
) -> list[Problem]:
    """Returns what is wrong with a declaration that has other values.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
        known: What is wrong without them; None is found out.
    """
    values, problems = put(declaration.dict(), tuned)
    if problems:
        return problems
    try:
        varied = Declaration.parse_obj(values)
    except ValidationError as error:
        return [explain(item, values, lambda path: "") for item in error.errors()]
    return new_problems(declaration, varied, search_paths, known)


def new_problems(
    before: Declaration, after: Declaration, search_paths: Sequence[str], known: Optional[set[_Told]] = None
) -> list[Problem]:
    """Returns what is wrong with a declaration, and was not with another.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
        known: What is wrong with the other; None is found out.
    """
    known = _known(before, search_paths) if known is None else known
    return [problem for problem in check(after, search_paths) if _key_of(problem) not in known]


def _known(declaration: Declaration, search_paths: Sequence[str]) -> set[_Told]:
    return {_key_of(problem) for problem in check(declaration, search_paths)}


def _key_of(problem: Problem) -> _Told:
    return problem.path, problem.what
