"""What the process of a run says of itself to the one that watches it: see `pipeline.run.watcher`.

Shared memory, because it can be read whatever becomes of the writer, and no child of the writer's inherits it.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from typing import Optional, Union

_PATIENT, _DONE, _CODE, _COUNT, _NUMBER, _PLACE, _SIZE = 0, 1, 2, 3, 4, 5, 512
_memory: Union[bytearray, mmap.mmap] = bytearray(_SIZE)


def share() -> None:
    """Shares what is said from now on with the processes that this one forks."""
    global _memory
    _memory = mmap.mmap(-1, _SIZE)


def at(place: str) -> None:
    """Says where the run is, in words that may follow "ended": `in component Transform`."""
    text = place.encode()[: _SIZE - _PLACE]
    _memory[_PLACE:_SIZE] = text.ljust(_SIZE - _PLACE, b"\0")


def place() -> str:
    """Where the run is; empty before it is anywhere."""
    return bytes(_memory[_PLACE:_SIZE]).rstrip(b"\0").decode(errors="replace")


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Asks for time in the context: a signal is obeyed in order there, which takes longer."""
    before, _memory[_PATIENT] = _memory[_PATIENT], 1
    try:
        yield
    finally:
        _memory[_PATIENT] = before


def is_patient() -> bool:
    """Has it asked for time."""
    return bool(_memory[_PATIENT])


def heard(number: int) -> None:
    """Says that a signal has reached it."""
    _memory[_NUMBER] = number
    _memory[_COUNT] = min(_memory[_COUNT] + 1, 255)


def last_heard() -> Optional[int]:
    """The last signal that reached it."""
    return _memory[_NUMBER] or None


def count_heard() -> int:
    """How many signals have reached it."""
    return _memory[_COUNT]


def end(code: int) -> None:
    """Says that it has ended in order: all is said and written, and only the interpreter is left to end."""
    _memory[_CODE], _memory[_DONE] = code & 255, 1


def ended() -> Optional[int]:
    """Its exit code, if it has ended in order."""
    return _memory[_CODE] if _memory[_DONE] else None
