"""Puts values by their dotted paths into a declaration's values: those of a trial, or the best of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline

# What a Tuner behind Transform may vary.
SECTION = "trainer"
# Says nothing without what is before it.
_BARE = ".name"
# What a Tuner writes of its trials.
TRIALS_FILE = "trials.json"


def put(values: Mapping[str, Any], tuned: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Puts values into a declaration's values.

    Args:
        values: Nested values; they are left as they are.
        tuned: By dotted path.

    Returns:
        The new values; and the problem of each that has no place there.
    """
    found, problems = dict(values), []
    for name, value in tuned.items():
        try:
            found = _put(found, name.split("."), 0, value)
        except _NoPlaceError as error:
            problems.append(error.args[0])
    return found, problems


class _NoPlaceError(Exception):
    """Of a value; it holds the problem."""


def _put(held: Any, path: list[str], depth: int, value: Any) -> Any:
    """Returns what is held at a depth of the path, with the value at the path's end."""
    if depth == len(path):
        return value
    key, before = path[depth], ".".join(path[:depth])
    if isinstance(held, (list, tuple)):
        if not key.isdigit() or int(key) >= len(held):
            raise _NoPlaceError(_no_place(path, f"{before} holds {inline(held)}, and has no item {key}", before))
        index = int(key)
        return [*held[:index], _put(held[index], path, depth + 1, value), *held[index + 1 :]]
    if held is not None and not isinstance(held, Mapping):
        raise _NoPlaceError(_no_place(path, f"{before} holds {inline(held)}, and has no keys of its own", before))
    held = held or {}
    return {**held, key: _put(held.get(key), path, depth + 1, value)}


def _no_place(path: list[str], what: str, whole: str) -> Problem:
    return Problem(".".join(path), what, "an item that is there, counted from 0; or a key", f"give all of {whole}")


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
