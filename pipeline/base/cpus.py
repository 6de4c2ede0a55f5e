"""How many CPUs this process may use: those that it may run on, and the quota of its container. Standard library only.

A container that may use 8 of a machine's 64 CPUs runs on all 64 of them until its quota is spent, and is then stopped
for the rest of each tenth of a second. Who makes a thread for each CPU that he sees is slower by it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Optional

# Where cgroups are mounted, and which ones this process is in.
_CGROUPS, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"
# Of version 1: the controllers' name is the mount's, too, and several may share one.
_CONTROLLER = "cpu"
_PERIOD_MICROSECONDS = 100_000


def available_cpus() -> int:
    """Returns how many CPUs are worth a thread or a process: at least 1; a part of one counts as one."""
    quota = cpu_quota()
    there = len(os.sched_getaffinity(0))
    return there if quota is None else min(there, max(math.ceil(quota), 1))


def cpu_quota() -> Optional[float]:
    """Returns how many CPUs' time the container may use, by its cgroups of version 1 or 2; None is no limit."""
    return min(_quotas(), default=None)


def _quotas() -> Iterator[float]:
    """Yields the quota of each cgroup around this process: the smallest is in effect.

    In a container its own one is mounted as the root, whatever path it has outside.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu, https://docs.kernel.org/scheduler/sched-bwc.html.
    """
    for line in _read(_OWN).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for folder in _around(_CGROUPS, path):
                quota, _, period = _read(os.path.join(folder, "cpu.max")).partition(" ")
                yield from _share(quota, period or str(_PERIOD_MICROSECONDS))
        elif _CONTROLLER in controllers.split(","):
            for mount in dict.fromkeys((controllers, _CONTROLLER)):
                for folder in _around(os.path.join(_CGROUPS, mount), path):
                    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                    yield from _share(*(_read(os.path.join(folder, name)) for name in names))


def _around(root: str, path: str) -> Iterator[str]:
    """Yields a cgroup's folder, and those around it."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield os.path.join(root, *parts[:count])


def _share(quota: str, period: str) -> Iterator[float]:
    # `max`, or -1, is none.
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        yield int(quota) / int(period)


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read().strip()
    return ""
