"""The CPU time of a process, with all that it has started. Standard library only."""

from __future__ import annotations

import contextlib
import os

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Returns the seconds that a process and all below it have used, of user and system; 0 where it has gone.

    The time of one that has ended is its parent's, which waited for it; where nobody did, it is lost.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        # The process may end meanwhile.
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            # pid (a name, which may hold anything) state parent …; from the 14th on the times, at last its children's.
            fields = file.read().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(name))
            ticks[int(name)] = sum(map(int, fields[11:15]))
    found, below = 0, [root]
    while below:
        pid = below.pop()
        found += ticks.get(pid, 0)
        below += children.get(pid, ())
    return found / _TICKS
