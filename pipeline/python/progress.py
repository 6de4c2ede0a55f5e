"""A verb's progress in a notebook, as one updated line."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Optional

from tfx_estimator.pipeline.base.text import duration

# Seconds between two updates: more often nobody can read them.
_UPDATE_SECONDS = 0.5


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    found = sys.modules.get("IPython")
    return hasattr(found.get_ipython(), "kernel") if found else False


class Line:
    """The line of one call of a verb."""

    def __init__(self, verb: str) -> None:
        self._verb, self._begun, self._shown = verb, time.monotonic(), 0.0
        self._text, self._since = "", self._begun
        self._handle: Any = None

    def __enter__(self) -> Line:
        from IPython.display import display

        self._handle = display(_plain(f"{self._verb}: starting"), raw=True, display_id=True)
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: Optional[BaseException | TracebackType]) -> None:
        how = "done in" if kind is None else "ended after"
        self._handle.update(_plain(f"{self._verb}: {how} {duration(time.monotonic() - self._begun)}"), raw=True)

    def show(self, text: str) -> None:
        """Shows the current activity and its duration."""
        now = time.monotonic()
        if text != self._text:
            self._text, self._since = text, now
        if text and now - self._shown >= _UPDATE_SECONDS:
            self._shown = now
            status = f"{text}, {duration(int(now - self._since))} elapsed" if now - self._since >= 1 else text
            self._handle.update(_plain(f"{self._verb}: {status}"), raw=True)


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": text}
