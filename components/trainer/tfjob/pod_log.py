"""What a container prints, kept in a file that only grows, however often it is asked for anew."""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Callable, Iterator
from typing import Optional

# A line, after its time. Kubernetes' times have nanoseconds, with or without zeros at their end.
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) (.*)", re.DOTALL)
# A line that is longer than this is cut: its end may never come.
_LONGEST_LINE = 1 << 20

# Seconds, nanoseconds, and which of the lines of this time.
_Place = tuple[int, int, int]


class PodLog:
    """The log of one container.

    Kubernetes tells a log from a whole second on, so some of its lines come again; and once the log has been rotated
    not all of them do: what was kept is neither told twice nor thrown away.

    Args:
        path: The file; what another process has kept in it is taken for the same log.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last: _Place = (0, 0, 0)
        # What another process has kept already, up to where it has come again; None before anything was read.
        self._old: Optional[bytes] = None
        self._at = 0
        # True once the log is complete.
        self.is_whole = False

    @property
    def since(self) -> str:
        """From when on to ask for the rest."""
        if self._last == (0, 0, 0):
            return ""
        return datetime.datetime.fromtimestamp(self._last[0], datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def take(self, parts: Iterator[bytes], is_whole: bool, is_over: Callable[[], bool]) -> None:
        """Keeps what is new of a stream; of several at the same time as well.

        Args:
            parts: The log, with times, to where it ends.
        """
        place: _Place = (0, 0, 0)
        keeps, rest = True, b""
        for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines[:-1], b"\n".join([*lines[-1:], rest])], b""
            place, keeps = self._keep([line + b"\n" for line in lines], place, keeps)
            if is_over():
                return
        # A part of a line is not kept otherwise: the whole line comes with the next request.
        self._keep([rest] if is_whole and rest else [], place, keeps)
        self.is_whole = self.is_whole or is_whole

    def _keep(self, lines: list[bytes], place: _Place, keeps: bool) -> tuple[_Place, bool]:
        with self._lock:
            new = []
            for line in lines:
                # A line without a time belongs to the line before.
                if match := _STAMPED.fullmatch(line):
                    time = _time(match)
                    place = (*time, place[2] + 1 if place[:2] == time else 1)
                    line = match[4]
                    if keeps := place > self._last:
                        self._last = place
                if keeps:
                    new.append(line)
            text = b"".join(self._without_old(new))
            # Also without any text, so that there is a file for each container.
            with open(self._path, "ab") as file:
                file.write(text)
        return place, keeps

    def _without_old(self, lines: list[bytes]) -> Iterator[bytes]:
        """Yields those lines that no other process has kept."""
        if self._old is None and lines:
            self._old = _read(self._path)
            self._at = _place_in(self._old, b"".join(lines))
        for line in lines:
            assert self._old is not None
            rest = self._old[self._at : self._at + len(line)]
            if line.startswith(rest):
                # The end of the file may be a part of a line.
                self._at += len(rest)
                line = line[len(rest) :]
            else:
                self._at = len(self._old)
            if self._at == len(self._old):
                # All of the old text has come again.
                self._old, self._at = b"", 0
            if line:
                yield line


def _place_in(old: bytes, text: bytes) -> int:
    """Where in a log is what is told of it again: all its lines, as a single one may come again and again."""
    if old.startswith(text):
        return 0
    # The last place is that after which nothing can be missing.
    if again := old.rfind(b"\n" + text) + 1:
        return again
    # Or what was told first, of which the file ends with a part; it may end within a line.
    rest = len(old) - len(text)
    place = 0 if rest <= 0 else old.find(b"\n", rest) + 1 or len(old)
    while not text.startswith(old[place:]):
        place = old.find(b"\n", place) + 1 or len(old)
    return place


def _time(match: re.Match[bytes]) -> tuple[int, int]:
    zone = "+00:00" if match[3] == b"Z" else match[3].decode()
    moment = datetime.datetime.fromisoformat(match[1].decode() + zone)
    return int(moment.timestamp()), int((match[2] or b"0").ljust(9, b"0"))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
