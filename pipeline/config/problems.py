"""Problems of a declaration, all shown at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line

_MAX_VALUE = 80
# Values for `--vary`: `5,10`, not a YAML list.
_SEVERAL = re.compile(r"[^][{}\"',]+(,[^][{}\"',]+)+")
# Prefix of `where` for an override.
OVERRIDE = "--set "


@dataclass(frozen=True)
class Problem:
    """One problem of a declaration.

    Args:
        path: Dotted path in the declaration; empty for the whole file.
        where: `file:line`, or the override.
        value: The value as YAML; empty if there is none.
        depends: Further dotted paths on which the problem depends: if one of them is invalid itself, the problem is not
            shown.
    """

    path: str
    what: str
    expected: str = ""
    todo: str = ""
    where: str = ""
    value: str = ""
    depends: tuple[str, ...] = ()

    def corrected(self) -> str:
        """Returns what to do; for a wrong override, to correct that, not a line of the file."""
        if self.where.startswith(OVERRIDE):
            key, _, given = (each.strip() for each in self.where[len(OVERRIDE) :].partition("="))
            if self.path == key and _SEVERAL.fullmatch(given):
                return f"to try each of several values: tfx-estimator compare … --vary {key}={given}"
        if not self.todo or not self.where.startswith(OVERRIDE) or OVERRIDE in self.todo:
            return self.todo
        written = self.where[len(OVERRIDE) :].partition("=")[0].strip()
        # An override of one of its keys may create a section. An item of a list has no override of its own.
        key = written if written.startswith(f"{self.path}.") else re.split(r"[.][0-9]", self.path)[0]
        return f"in {OVERRIDE}{key}=VALUE: {self.todo}"

    def __str__(self) -> str:
        head = self.path + (f": {shorten(self.value)}" if self.value else "") if self.path else ""
        lines = [f"{self.where}  {head}".strip(), f"    {self.what}"]
        if self.expected:
            lines.append(f"    expected: {self.expected}")
        if todo := self.corrected():
            lines.append(f"    to do:    {todo}")
        return "\n".join(map(one_line, lines))


def to_error(problems: Sequence[Problem], source: str, target: str = "", notes: Sequence[str] = ()) -> DeclarationError:
    """Combines all problems of a preset or file, as the user named it, into one error."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    text = "\n\n".join(f"  {line}".replace("\n", "\n  ") for line in map(str, problems))
    name = one_line(source)
    again = " --set …" if any(problem.where.startswith(OVERRIDE) for problem in problems) else ""
    again += f" --target {target}" if target else ""
    remarks = "".join(f"  note:     {one_line(note)}\n" for note in notes)
    todo = f"\n\n{remarks}  then:     tfx-estimator validate {name}{again}"
    return DeclarationError(f"the declaration {name} has {count}\n\n{text}{todo}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word nearest to what was written; empty if none is near."""
    plain = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    found = difflib.get_close_matches(str(word).lower().replace("_", "-"), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else ""


def nearest_multiples(batch: int, replicas: int) -> str:
    """Returns the nearest batch sizes that replicas can share evenly, for example `126 or 129`."""
    lower = batch - batch % replicas
    return f"{lower} or {lower + replicas}" if lower else str(replicas)


def shorten(text: str) -> str:
    """Cuts a long value for a message."""
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
