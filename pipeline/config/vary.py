"""`--vary KEY=VALUE,VALUE`: one declaration under each of several values, or under each combination of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.yaml_text import inline, read_yaml

_VARY = "--vary"
_SECTION = "trainer"


@dataclass(frozen=True)
class Variation:
    """One combination of values.

    Args:
        overrides: `key.path=value` each, as of `--set`.
    """

    overrides: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.values.items())

    @property
    def values(self) -> dict[str, str]:
        """The values, as YAML writes them, by dotted path."""
        parts = (override.partition("=") for override in self.overrides)
        return {key: value for key, _, value in parts}


def parse_variations(texts: Sequence[str]) -> list[Variation]:
    """Reads what is to be varied.

    Args:
        texts: `key.path=value,value` each, the values as YAML. A key that the declaration has not is one of `trainer`.

    Returns:
        The combinations, in the order of the values, the last key's varying fastest; one that changes nothing where
        there are no texts.

    Raises:
        DeclarationError: A text cannot be read.
    """
    parsed = list(map(_parse, texts))
    seen: dict[str, str] = {}
    for text, each in zip(texts, parsed):
        if (key := each[0][0]) in seen:
            raise DeclarationError(
                f"{_VARY} {one_line(text)}: {key} is varied by {_VARY} {one_line(seen[key])} already",
                expected="each key once",
                todo=f"list all values in one: {_VARY} {key}=VALUE,VALUE",
            )
        seen[key] = text
    combinations = itertools.product(*parsed)
    return [Variation(tuple(f"{key}={inline(value)}" for key, value in each)) for each in combinations]


def check_not_set(overrides: Sequence[str], variation: Variation) -> None:
    """Refuses values that would be lost: what is varied is set last.

    Args:
        overrides: `key.path=value` each, of `--set`.
        variation: Any of those that `parse_variations` returned.

    Raises:
        DeclarationError: A key is both set and varied.
    """
    for override in overrides:
        key = ".".join(part.strip() for part in override.partition("=")[0].split("."))
        if lost := [each for each in variation.values if key == each or key.startswith(f"{each}.")]:
            raise DeclarationError(
                f"--set {one_line(override)}: {lost[0]} is varied as well, by {_VARY}",
                expected="each key in one of the two",
                todo=f"leave the --set out, or the {_VARY}",
            )


def reworded(error: DeclarationError, variation: Variation) -> DeclarationError:
    """Returns the error of a declaration under a variation, which knows no option but `--set`.

    Args:
        error: As `load` raises it.
    """
    if not variation.overrides:
        return error
    # The rest of the message is advice for a file.
    what = error.what.partition("\n\n  then: ")[0]
    said = what
    for override in variation.overrides:
        for form in (override, f"{override.partition('=')[0]}=VALUE"):
            said = said.replace(f"--set {form}", f"{_VARY} {form}")
    if said == what:
        said = f"{' '.join(f'{_VARY} {override}' for override in variation.overrides)}: {what}"
    return DeclarationError(said, expected=error.expected, todo=error.todo)


def _parse(text: str) -> list[tuple[str, Any]]:
    key, equals, written = text.partition("=")
    document = read_yaml(f"[{written}]", f"{_VARY} {text}")
    if not equals or not key.strip() or document.problems or not isinstance(document.value, list) or not document.value:
        raise DeclarationError(
            f"{_VARY} {one_line(text)}: this cannot be read",
            expected="`key.path=value,value`, the values as YAML: trainer.path=estimator,keras",
            todo="write the key, `=`, and the values with commas in between",
        )
    parts = [part.strip() for part in key.split(".")]
    if parts[0] not in Declaration.__fields__:
        if parts[0] not in TrainerSection.__fields__:
            known = (*TrainerSection.__fields__, *Declaration.__fields__)
            near = nearest(parts[0], known)
            raise DeclarationError(
                f"{_VARY} {one_line(text)}: there is no key {parts[0]!r}",
                expected="a key of `trainer`, or the dotted path of another",
                todo=f"did you mean `{near}`?" if near else "see `tfx-estimator schema`",
            )
        parts = [_SECTION, *parts]
    path = ".".join(parts)
    return [(path, value) for value in document.value]
