"""Sets values of a declaration by dotted path: those of `--set`, of a trial, of `--vary KEY=VALUE,VALUE`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import OVERRIDE, Problem
from tfx_estimator.pipeline.config.yaml_text import inline, read_yaml

# A Tuner after Transform may vary only this section.
SECTION = "trainer"
# A last key that needs the one before it to be clear.
_BARE = ".name"
# The file in which a Tuner lists its trials.
TRIALS_FILE = "trials.json"
_VARY = "--vary"


def put(values: Mapping[str, Any], tuned: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Returns a copy of nested values with others set by dotted path, and a problem for each that cannot be set."""
    found, problems = dict(values), []
    for name, value in tuned.items():
        try:
            found = _put(found, name.split("."), value)
        except LookupError as error:
            problems.append(error.args[0])
    return found, problems


def _put(held: Any, path: Sequence[str], value: Any, depth: int = 0) -> Any:
    """Returns a copy of `held`, the value at a depth of the path, with the value set."""
    if depth == len(path):
        return value
    key = path[depth]
    if isinstance(held, Mapping) or held is None:
        held = held or {}
        return {**held, key: _put(held.get(key), path, value, depth + 1)}
    is_list = isinstance(held, (list, tuple))
    if is_list and key.isdigit() and int(key) < len(held):
        return [_put(item, path, value, depth + 1) if i == int(key) else item for i, item in enumerate(held)]
    before = ".".join(path[:depth])
    what = f"{before} holds {inline(held)}, and has no {f'item {key}' if is_list else 'keys of its own'}"
    expected = "an item that is there, counted from 0; or a key of a section"
    raise LookupError(Problem(".".join(path), what, expected, f"set the whole of {before}"))


def of_declaration(tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the declaration; the others are for code that reads `fn_args.hyperparameters`."""
    return {name: value for name, value in tuned.items() if name.startswith(f"{SECTION}.")}


def show_values(tuned: Mapping[str, Any]) -> str:
    """Returns values in one line, with short names."""
    names = short_names(list(tuned))
    return ", ".join(f"{names[name]} {show_value(value)}" for name, value in tuned.items())


def show_value(value: Any) -> str:
    """Returns a value for display: fractions with four significant digits, others as YAML."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else inline(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns a short name for each dotted path: its last part, unless that is `name` or not unique."""
    last = [".".join(name.split(".")[-2 if name.endswith(_BARE) else -1 :]) for name in names]
    return {name: short if last.count(short) == 1 else name for name, short in zip(names, last)}


@dataclass(frozen=True)
class Variation:
    """One combination of values."""

    overrides: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.values.items())

    @property
    def values(self) -> dict[str, str]:
        """The values, as YAML writes them, by dotted path."""
        parts = (override.partition("=") for override in self.overrides)
        return {key: value for key, _, value in parts}


def parse_variations(texts: Sequence[str]) -> list[Variation]:
    """Parses `key.path=value,value` options into all combinations; without options, into one empty variation."""
    varied: dict[str, list[Any]] = {}
    for text in texts:
        key, values = _parse(text)
        varied.setdefault(key, []).extend(values)
    combinations = itertools.product(*varied.values())
    return [Variation(tuple(f"{key}={inline(value)}" for key, value in zip(varied, each))) for each in combinations]


def check_not_set(overrides: Sequence[str], variation: Variation) -> None:
    """Refuses an override that the variation would replace."""
    for override in overrides:
        key = override.partition("=")[0].replace(" ", "")
        if lost := [each for each in variation.values if f"{key}.".startswith(f"{each}.")]:
            raise DeclarationError(
                f"{OVERRIDE}{one_line(override)}: {lost[0]} is varied as well, by {_VARY}",
                expected="each key in one of the two",
                todo=f"leave the {OVERRIDE.strip()} out, or the {_VARY}",
            )


def reworded(error: DeclarationError, variation: Variation) -> DeclarationError:
    """Rewords an error under a variation, which names `--set`, to name `--vary`."""
    # The rest of the message advises on files.
    what = error.what.partition("\n\n  then: ")[0]
    for override, key in zip(variation.overrides, variation.values):
        what = what.replace(f"{OVERRIDE}{override}", f"{_VARY} {override}")
        what = what.replace(f"in {OVERRIDE}{key}=VALUE", f"in {_VARY} {key}=VALUE")
    if variation.overrides and _VARY not in what:
        what = f"{_VARY} {' '.join(variation.overrides)}: {what}"
    return DeclarationError(what, expected=error.expected, todo=error.todo) if variation.overrides else error


def _parse(text: str) -> tuple[str, list[Any]]:
    key, equals, written = text.partition("=")
    document = read_yaml(f"[{written}]", f"{_VARY} {text}")
    if not equals or not key.strip() or document.problems or not isinstance(document.value, list) or not document.value:
        raise DeclarationError(
            f"{_VARY} {one_line(text)}: this cannot be read",
            expected="`key.path=value,value`, the values as YAML: trainer.path=estimator,keras",
            todo="write the key, `=`, and the values with commas in between",
        )
    # A key that is not at the top level is one of `trainer`.
    path = key.replace(" ", "")
    if path.partition(".")[0] in Declaration.__fields__:
        return path, document.value
    return f"{SECTION}.{path}", document.value
