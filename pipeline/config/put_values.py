"""Puts values by their dotted paths into a declaration's values: of `--set`, of a trial, or the best of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline

# A Tuner after Transform may vary only this section.
SECTION = "trainer"
# A last key that says nothing without the one before it.
_BARE = ".name"
# The file in which a Tuner lists its trials.
TRIALS_FILE = "trials.json"


def put(values: Mapping[str, Any], tuned: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Returns new nested values, with others at their dotted paths; and the problem of each that has no place there."""
    found, problems = dict(values), []
    for name, value in tuned.items():
        path = name.split(".")
        if problem := _in_the_way(found, path):
            problems.append(problem)
        else:
            found = _put(found, path, value)
    return found, problems


def _in_the_way(values: Mapping[str, Any], path: Sequence[str]) -> Optional[Problem]:
    """The problem of a path that goes through a value with no such part."""
    held: Any = values
    for depth, key in enumerate(path):
        before = ".".join(path[:depth])
        if isinstance(held, (list, tuple)) and key.isdigit() and int(key) < len(held):
            held = held[int(key)]
        elif isinstance(held, Mapping) or held is None:
            held = (held or {}).get(key)
        else:
            part = f"item {key}" if isinstance(held, (list, tuple)) else "keys of its own"
            what = f"{before} holds {inline(held)}, and has no {part}"
            expected = "an item that is there, counted from 0; or a key of a section"
            return Problem(".".join(path), what, expected, f"set the whole of {before}")
    return None


def _put(held: Any, path: Sequence[str], value: Any) -> Any:
    """Returns what is held, with the value at a path in it."""
    if not path:
        return value
    key, inside = path[0], path[1:]
    if isinstance(held, (list, tuple)):
        return [_put(item, inside, value) if place == int(key) else item for place, item in enumerate(held)]
    held = held or {}
    return {**held, key: _put(held.get(key), inside, value)}


def of_declaration(tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those that a declaration holds; the others are for code that reads `fn_args.hyperparameters`."""
    return {name: value for name, value in tuned.items() if name.startswith(f"{SECTION}.")}


def tell_values(tuned: Mapping[str, Any]) -> str:
    """Returns values in one line, as a person says them."""
    names = short_names(list(tuned))
    return ", ".join(f"{names[name]} {show_value(value)}" for name, value in tuned.items())


def show_value(value: Any) -> str:
    """Returns a value, a fraction with four significant digits; what is neither number nor text as in YAML."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else inline(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns a short name for each dotted path: its last part, unless that is `name`, or another one has the same."""
    last = [".".join(name.split(".")[-2 if name.endswith(_BARE) else -1 :]) for name in names]
    return {name: short if last.count(short) == 1 else name for name, short in zip(names, last)}
