"""Overrides from the command line: `--set trainer.train_steps=500`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import MAX_DEPTH, Path, inline, read_yaml

_FORM = "`key.path=value`, the value as YAML: trainer.train_steps=500"


@dataclass(frozen=True)
class Override:
    """One parsed override.

    Args:
        path: Where the value goes.
        text: What the user wrote.
    """

    path: Path
    value: Any
    text: str


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Reads overrides.

    Args:
        texts: `key.path=value` each. Of two for the same key the later wins.

    Returns:
        What could be read, and what could not.
    """
    overrides, problems = [], []
    for text in texts:
        key, equals, written = text.partition("=")
        path = tuple(part.strip() for part in key.strip().split("."))
        where = f"--set {text}"
        if not equals:
            problems.append(Problem("", "the override has no `=`", _FORM, f"write --set {key}=VALUE", where))
            continue
        if not all(path):
            problems.append(Problem("", "the override's key has an empty part", _FORM, "name a key", where))
            continue
        if len(path) > MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} parts"
            problems.append(Problem("", "the override's key has too many parts", expected, "name a key", where))
            continue
        document = read_yaml(written, where)
        if document.problems:
            first = document.problems[0]
            todo = f"quote the value for YAML, and the whole for the shell: --set '{key}=\"...\"'"
            problems.append(Problem(".".join(path), first.what, "a YAML value", todo, where))
            continue
        overrides.append(Override(path, document.value, text))
    return overrides, problems


def apply_override(values: dict[str, Any], override: Override) -> Problem | None:
    """Puts an override's value into nested values, in place.

    Args:
        override: What to put where.

    Returns:
        The problem where a value that is no section stands in the way.
    """
    target = values
    for depth, key in enumerate(override.path[:-1], 1):
        if target.get(key) is None:
            target[key] = {}
        if not isinstance(target[key], dict):
            return Problem(
                ".".join(override.path),
                f"{'.'.join(override.path[:depth])} holds {inline(target[key])}, and has no keys of its own",
                "a key of a section",
                f"set the whole of {'.'.join(override.path[:depth])}",
                f"--set {override.text}",
            )
        target = target[key]
    target[override.path[-1]] = override.value
    return None
