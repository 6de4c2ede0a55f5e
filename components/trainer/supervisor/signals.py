"""SIGTERM, SIGINT and SIGHUP while training is supervised: noted, so that training ends in order."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, ClassVar, Optional

from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import NUMBERS, note


class Signals:
    """Notes the first signal; a second one ends the process at once.

    Python hands signals to the main thread alone: in another one, these are those of the main thread.
    """

    _main: ClassVar[Optional[Signals]] = None

    def __init__(self) -> None:
        self._received: Optional[int] = None
        self._again = False
        self._of = self
        self._outer: Optional[Signals] = None
        self._before: dict[int, Any] = {}
        self._patience = shared_status.patient()

    @property
    def received(self) -> Optional[int]:
        """The first; None as long as there was none."""
        return self._received if self._of is self else self._of.received

    @property
    def again(self) -> bool:
        """Was there a second one."""
        return self._again if self._of is self else self._of.again

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in NUMBERS}
            self._outer, Signals._main = Signals._main, self
        elif Signals._main is not None:
            self._of = Signals._main
        self._patience.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patience.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if Signals._main is self:
            Signals._main = self._outer

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        note(number)
        if self._received is not None:
            self._again = True
            if number != signal.SIGINT:
                raise SystemExit(128 + number)
            raise KeyboardInterrupt
        self._received = number
