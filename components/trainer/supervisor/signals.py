"""SIGTERM and SIGINT while training is supervised: noted, so that training ends in order."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Optional

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Notes the first signal; a second one ends the process at once.

    Outside of the main thread there is nothing to note: Python hands signals to the main thread alone.
    """

    def __init__(self) -> None:
        self.received: Optional[int] = None
        self.again = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _NUMBERS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        if self.received is not None:
            self.again = True
            if number == signal.SIGTERM:
                raise SystemExit(128 + number)
            raise KeyboardInterrupt
        self.received = number
