"""The clocks of a task, and what they measured between the two ends of a window."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from tfx_estimator.components.trainer.protocol.events import kilobytes, read_usage
from tfx_estimator.components.trainer.protocol.measurement import TaskMeasurement, Window

_LOOK_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Clock:
    """A moment of this process.

    Args:
        wall: Seconds, since whenever.
        cpu: CPU seconds of this process.
        busy: CPU seconds that the cores worked for anybody.
    """

    step: int
    wall: float
    cpu: float
    busy: float

    @classmethod
    def now(cls, step: int, cores: Sequence[int]) -> Clock:
        """Reads the clocks."""
        return cls(step, time.monotonic(), time.process_time(), _busy_seconds(cores))


def measure_server(window: Window, task: str) -> None:
    """Measures a process without steps, between the chief's first and last one."""
    clocks = []
    for edge in ("begin", "end"):
        while not os.path.exists(window.edge(edge)):
            time.sleep(_LOOK_SECONDS)
        clocks.append(Clock.now(0, window.cores))
    save(window, task, clocks[0], clocks[1])


def save(window: Window, task: str, begin: Clock, end: Clock, **own: Any) -> None:
    """Writes what a task measured."""
    TaskMeasurement(
        task,
        end.step - begin.step,
        end.wall - begin.wall,
        end.cpu - begin.cpu,
        end.busy - begin.busy,
        int(read_usage()["peak_rss"]),
        kilobytes("/proc/self/smaps_rollup", "Pss") << 10,
        **own,
    ).save(window.folder)


def _busy_seconds(cores: Sequence[int]) -> float:
    """CPU seconds that cores worked since the machine started, those that its host took away included.

    Source: proc_stat(5).
    """
    names = {f"cpu{core}" for core in cores}
    with open("/proc/stat", encoding="utf-8") as file:
        lines = [line.split() for line in file if line.startswith("cpu")]
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = sum(int(line[place]) for line in lines if line[0] in names for place in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK")
