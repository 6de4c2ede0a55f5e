"""Puts values by their dotted paths into a declaration's values: those of a trial, or the best of all."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.config.overrides import Override, apply_override
from tfx_estimator.pipeline.config.problems import Problem

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
    copied = copy.deepcopy(dict(values))
    problems = [
        apply_override(copied, Override(tuple(name.split(".")), value, f"{name}={value}"))
        for name, value in tuned.items()
    ]
    return copied, [problem for problem in problems if problem]


def of_declaration(tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those that a declaration holds; the others are for code that reads `fn_args.hyperparameters`."""
    return {name: value for name, value in tuned.items() if name.startswith(f"{SECTION}.")}


def tell_values(tuned: Mapping[str, Any]) -> str:
    """Returns values in one line, as a person says them."""
    names = short_names(list(tuned))
    return ", ".join(f"{names[name]} {show_value(value)}" for name, value in tuned.items())


def show_value(value: Any) -> str:
    """Returns a value, a fraction with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns a short name for each dotted path: its last part, unless that is `name`, or another one has the same."""
    last = [".".join(name.split(".")[-2 if name.endswith(_BARE) else -1 :]) for name in names]
    return {name: short if last.count(short) == 1 else name for name, short in zip(names, last)}
