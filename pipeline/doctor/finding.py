"""What an examination found, in one line. Standard library only: the doctor must work where nothing else does."""

from __future__ import annotations

from dataclasses import asdict, dataclass

OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class Finding:
    """What an examination found.

    Args:
        name: What was looked at.
        state: `ok`; `warning`, if a run works, but not all that it may be told; `failed`, if none does.
        todo: What to do about it; nothing if it is ok.
    """

    name: str
    state: str
    what: str
    todo: str = ""

    def to_dict(self) -> dict[str, str]:
        """Returns what JSON can hold."""
        return asdict(self)


def ok(name: str, what: str) -> Finding:
    """Returns a finding that is as it should be."""
    return Finding(name, OK, what)
