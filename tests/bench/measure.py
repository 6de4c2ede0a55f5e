"""Clocks, and workers: each measurement is a fresh process."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Clock:
    """A moment, for differences.

    Args:
        cpu: CPU seconds, user and system, of this process with all its threads and of its ended children.
        wall: Seconds.
    """

    cpu: float
    wall: float

    @classmethod
    def now(cls) -> Clock:
        """Reads the clocks."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.process_time() + children.ru_utime + children.ru_stime, time.perf_counter())

    def __sub__(self, earlier: Clock) -> Clock:
        return Clock(self.cpu - earlier.cpu, self.wall - earlier.wall)


def run_worker(task: str, **options: Any) -> dict[str, Any]:
    """Runs `tests.bench.worker` in a fresh process.

    Args:
        task: Name of the task.
        options: Its arguments; what JSON can hold.

    Returns:
        What the task returned, and in `process` the CPU and wall seconds of the whole process with its children.

    Raises:
        RuntimeError: It failed; the message ends with the last lines that it printed.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"}
    environment.pop("TF_CONFIG", None)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-bench-") as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        command = [sys.executable, "-m", "tests.bench.worker", task, json.dumps(options), str(result)]
        before = Clock.now()
        with log.open("wb") as output:
            try:
                code = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=TIMEOUT_SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                code = f"none after {TIMEOUT_SECONDS} s"
        spent = Clock.now() - before
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            raise RuntimeError(f"benchmark task {task} {options} ended with {code}:\n{tail}")
        return {**json.loads(result.read_text()), "process": {"cpu": spent.cpu, "wall": spent.wall}}


def alternate(sides: Sequence[tuple[str, Callable[[], dict]]], rounds: int, tell: Callable[[str], None]) -> dict:
    """Runs A, B, … A, B, … so that what else the machine does meets all sides alike.

    Args:
        sides: Name and measurement of each.
        rounds: How often.
        tell: Hears of every single result.

    Returns:
        The results of each side, in order.
    """
    results: dict[str, list[dict]] = {name: [] for name, _ in sides}
    for number in range(1, rounds + 1):
        for name, measurement in sides:
            result = measurement()
            results[name].append(result)
            tell(f"round {number} of {rounds}, {name}: {result['cpu']:.2f} CPU s, {result['wall']:.2f} s")
    return results


def median(results: Sequence[dict], key: str) -> float:
    """The median of a value over the rounds.

    Args:
        results: One per round.
        key: Name of the value.

    Returns:
        The median.
    """
    return statistics.median(result[key] for result in results)
