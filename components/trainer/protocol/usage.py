"""What this process has used of the machine. Standard library only."""

from __future__ import annotations

import time


def read_usage() -> dict[str, float]:
    """Returns `cpu`, the seconds of all its threads, user and system; and `peak_rss`, its largest memory in bytes."""
    # getrusage's ru_maxrss would include the parent's peak, from before exec.
    return {"cpu": time.process_time(), "peak_rss": kilobytes("/proc/self/status", "VmHWM") << 10}


def kilobytes(path: str, key: str) -> int:
    """Reads a value of one of the kernel's files about this process."""
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{key}:"))
