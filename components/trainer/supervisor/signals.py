"""SIGTERM, SIGINT and SIGHUP while training is supervised: noted, so that training ends in order."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Optional

from tfx_estimator.pipeline.ending import slate
from tfx_estimator.pipeline.ending.signals import NUMBERS, note


class Signals:
    """Notes the first signal; a second one ends the process at once.

    Outside of the main thread there is nothing to note: Python hands signals to the main thread alone.
    """

    def __init__(self) -> None:
        self.received: Optional[int] = None
        self.again = False
        self._before: dict[int, Any] = {}
        self._patience = slate.patient()

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in NUMBERS}
        self._patience.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patience.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        note(number)
        if self.received is not None:
            self.again = True
            if number != signal.SIGINT:
                raise SystemExit(128 + number)
            raise KeyboardInterrupt
        self.received = number
