"""The CPUs that this process may use, by its affinity and its container's quota. Standard library only.

A container that may use 8 of a machine's 64 CPUs runs on all 64 of them until its quota is spent, and is then throttled
for the rest of each tenth of a second. A program with a thread for each visible CPU is slower by it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Optional

# Where cgroups are mounted, and the cgroups of this process.
_CGROUPS, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"
# In version 1, a mount has its controllers' name; several may share one.
_CONTROLLER = "cpu"
_PERIOD_MICROSECONDS = 100_000


def available_cpus() -> int:
    """Returns the number of CPUs that are worth a thread or a process: at least 1, and rounded up."""
    quota, visible = cpu_quota(), len(os.sched_getaffinity(0))
    return visible if quota is None else min(visible, max(math.ceil(quota), 1))


def cpu_quota() -> Optional[float]:
    """Returns the container's quota in CPUs, of cgroups version 1 or 2; None for no limit."""
    return min(_quotas(), default=None)


def _quotas() -> Iterator[float]:
    """Yields the quota of each enclosing cgroup: the smallest applies.

    In a container, its own cgroup is mounted as the root.

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
    """Yields a cgroup's folder and its parents."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield os.path.join(root, *parts[:count])


def _share(quota: str, period: str) -> Iterator[float]:
    # `max`, or -1, is no quota.
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        yield int(quota) / int(period)


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read().strip()
    return ""
