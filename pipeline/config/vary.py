"""`--vary KEY=VALUE,VALUE`: one declaration under each of several values, or under each combination of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import OVERRIDE, nearest
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.yaml_text import inline, read_yaml

_VARY = "--vary"
_SECTION = "trainer"


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
    """Reads `key.path=value,value` each; a key that the declaration has not is one of `trainer`.

    Returns the combinations, the last key's varying fastest; one that changes nothing where there are no texts.
    """
    varied: dict[str, list[Any]] = {}
    for text in texts:
        key, values = _parse(text)
        if key in varied:
            raise DeclarationError(
                f"{_VARY} {one_line(text)}: {key} is varied by another {_VARY} already",
                expected="each key once",
                todo=f"list all values in one: {_VARY} {key}=VALUE,VALUE",
            )
        varied[key] = values
    combinations = itertools.product(*varied.values())
    return [Variation(tuple(f"{key}={inline(value)}" for key, value in zip(varied, each))) for each in combinations]


def check_not_set(overrides: Sequence[str], variation: Variation) -> None:
    """Refuses values that would be lost: what is varied is set last."""
    for override in overrides:
        key = override.partition("=")[0].replace(" ", "")
        if lost := [each for each in variation.values if f"{key}.".startswith(f"{each}.")]:
            raise DeclarationError(
                f"{OVERRIDE}{one_line(override)}: {lost[0]} is varied as well, by {_VARY}",
                expected="each key in one of the two",
                todo=f"leave the {OVERRIDE.strip()} out, or the {_VARY}",
            )


def reworded(error: DeclarationError, variation: Variation) -> DeclarationError:
    """Returns the error of a declaration under a variation, which knows no option but `--set`."""
    # The rest of the message is advice for a file.
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
    path = key.replace(" ", "")
    first = path.partition(".")[0]
    if first in Declaration.__fields__:
        return path, document.value
    if first not in TrainerSection.__fields__:
        near = nearest(first, (*TrainerSection.__fields__, *Declaration.__fields__))
        raise DeclarationError(
            f"{_VARY} {one_line(text)}: there is no key {first!r}",
            expected="a key of `trainer`, or the dotted path of another",
            todo=f"did you mean `{near}`?" if near else "see `tfx-estimator schema`",
        )
    return f"{_SECTION}.{path}", document.value
