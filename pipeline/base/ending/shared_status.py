"""The status of a run's process, for the process that watches it: see `pipeline.run.watcher`.

It is in shared memory, which stays readable after a crash of the writer, and is not inherited by its child programs.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from typing import Optional, Union

_PATIENT, _DONE, _CODE, _COUNT, _NUMBER, _PLACE, _SIZE = 0, 1, 2, 3, 4, 5, 512
_memory: Union[bytearray, mmap.mmap] = bytearray(_SIZE)


def share() -> None:
    """Shares the status with the processes that are forked from now on."""
    global _memory
    _memory = mmap.mmap(-1, _SIZE)


def at(place: str) -> None:
    """Sets the place of the run, a phrase that can follow "ended": `in component Transform`."""
    text = place.encode()[: _SIZE - _PLACE]
    _memory[_PLACE:_SIZE] = text.ljust(_SIZE - _PLACE, b"\0")


def place() -> str:
    """Returns the place of the run; empty at its beginning."""
    return bytes(_memory[_PLACE:_SIZE]).rstrip(b"\0").decode(errors="replace")


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Asks the watcher for a longer grace period in the context, whose cleanup after a signal takes longer."""
    before, _memory[_PATIENT] = _memory[_PATIENT], 1
    try:
        yield
    finally:
        _memory[_PATIENT] = before


def is_patient() -> bool:
    """Returns True within `patient`."""
    return bool(_memory[_PATIENT])


def heard(number: int) -> None:
    """Records a received signal."""
    _memory[_NUMBER] = number
    _memory[_COUNT] = min(_memory[_COUNT] + 1, 255)


def last_heard() -> Optional[int]:
    """Returns the last received signal."""
    return _memory[_NUMBER] or None


def count_heard() -> int:
    """Returns the number of received signals."""
    return _memory[_COUNT]


def end(code: int) -> None:
    """Records a regular end: all output is written, and only the interpreter still has to exit."""
    _memory[_CODE], _memory[_DONE] = code & 255, 1


def ended() -> Optional[int]:
    """Returns the exit code of a regular end; None before."""
    return _memory[_CODE] if _memory[_DONE] else None
