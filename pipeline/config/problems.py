"""What is wrong with a declaration: one problem each, all shown at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfx_estimator.pipeline.errors import DeclarationError

_MAX_VALUE = 80


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Args:
        path: Dotted path in the declaration; empty where the whole file is meant.
        what: What was wrong.
        expected: What was expected instead.
        todo: What to do next.
        where: `file:line`, or the override.
        value: The value, as YAML would write it; empty where there is none.
        depends: Further dotted paths that the problem follows from: where one of these is wrong itself, this problem
            is not shown.
    """

    path: str
    what: str
    expected: str = ""
    todo: str = ""
    where: str = ""
    value: str = ""
    depends: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = self.path + (f": {shorten(self.value)}" if self.value else "") if self.path else ""
        lines = [f"{self.where}  {head}".strip(), f"    {self.what}"]
        if self.expected:
            lines.append(f"    expected: {self.expected}")
        if self.todo:
            lines.append(f"    to do:    {self.todo}")
        return "\n".join(lines)


def to_error(problems: Sequence[Problem], source: str) -> DeclarationError:
    """Makes one error of all problems.

    Args:
        problems: At least one.
        source: The preset or file, as the user named it.
    """
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    text = "\n\n".join(f"  {line}".replace("\n", "\n  ") for line in map(str, problems))
    todo = f"\n\n  then:     tfx-estimator validate {source}"
    return DeclarationError(f"the declaration {source} has {count}\n\n{text}{todo}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word that is nearest to what was written; empty where none is near."""
    plain = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    found = difflib.get_close_matches(str(word).lower().replace("_", "-"), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else ""


def nearest_multiples(batch: int, replicas: int) -> str:
    """Returns the batch sizes next to one that replicas cannot share evenly, for example `126 or 129`."""
    lower = batch - batch % replicas
    return f"{lower} or {lower + replicas}" if lower else str(replicas)


def shorten(text: str) -> str:
    """Cuts a long value for a message."""
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
