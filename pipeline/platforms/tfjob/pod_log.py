"""What a container prints, kept in a file that only grows, however often it is asked for anew."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator

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
        path: The file; what another process has kept in it is set aside.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last: _Place = (0, 0, 0)
        self._has_begun = False
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
            text = b"".join(new)
            # Also without any text, so that there is a file for each container.
            if text or not os.path.exists(self._path):
                self._begin()
                with open(self._path, "ab") as file:
                    file.write(text)
        return place, keeps

    def _begin(self) -> None:
        """Sets aside what another process has kept of this log, which comes again."""
        if not self._has_begun:
            self._has_begun = True
            paths = (f"{self._path}.earlier-{number}" for number in itertools.count(1))
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._path, next(path for path in paths if not os.path.exists(path)))


def _time(match: re.Match[bytes]) -> tuple[int, int]:
    zone = "+00:00" if match[3] == b"Z" else match[3].decode()
    moment = datetime.datetime.fromisoformat(match[1].decode() + zone)
    return int(moment.timestamp()), int((match[2] or b"0").ljust(9, b"0"))
