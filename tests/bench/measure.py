"""Clocks and workers: each measurement runs in a fresh process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.root import ROOT

TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Clock:
    cpu: float
    wall: float

    @classmethod
    def now(cls) -> Clock:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.process_time() + children.ru_utime + children.ru_stime, time.perf_counter())

    def __sub__(self, earlier: Clock) -> Clock:
        return Clock(self.cpu - earlier.cpu, self.wall - earlier.wall)


def run_worker(task: str, *, python: str = sys.executable, **options: Any) -> dict[str, Any]:
    """Runs a task of `tests.bench.worker` in a fresh process."""
    before = Clock.now()
    with Worker(task, python=python, **options) as worker:
        result = worker.read()
        worker.wait()
    spent = Clock.now() - before
    return {**result, "process": {"cpu": spent.cpu, "wall": spent.wall}}


class Worker:
    """A fresh process that prints one JSON object per line; its task may wait between two lines."""

    def __init__(self, task: str, *, python: str = sys.executable, **options: Any) -> None:
        self._what = f"benchmark task {task} {options}"
        self._log = tempfile.NamedTemporaryFile(prefix="tfx-estimator-bench-", suffix=".log")  # noqa: SIM115
        # Removes what a killed process leaves there.
        self._temporary = tempfile.TemporaryDirectory(prefix="tfx-")
        environment = {
            **os.environ,
            "TMPDIR": self._temporary.name,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONWARNINGS": "ignore",
        }
        environment.pop("TF_CONFIG", None)
        self._process = subprocess.Popen(
            [python, "-m", "tests.bench.worker", task, json.dumps(options)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            stream.close()
        self._log.close()
        self._temporary.cleanup()

    def read(self) -> dict[str, Any]:
        if not select.select([self._stdout], [], [], TIMEOUT_SECONDS)[0]:
            raise RuntimeError(f"{self._what} printed nothing for {TIMEOUT_SECONDS} s:\n{self._tail()}")
        line = self._stdout.readline()
        if not line:
            raise RuntimeError(f"{self._what} ended with {self._process.wait()}:\n{self._tail()}")
        return json.loads(line)

    def go(self) -> dict[str, Any]:
        self._stdin.write("go\n")
        return self.read()

    def wait(self) -> None:
        self._stdin.close()
        if self._process.wait(TIMEOUT_SECONDS):
            raise RuntimeError(f"{self._what} ended with {self._process.returncode}:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(Path(self._log.name).read_text(errors="replace").splitlines()[-25:])


def alternate(sides: Sequence[tuple[str, Callable[[], dict]]], rounds: int, log: Callable[[str], None]) -> dict:
    """Runs A, B, … A, B, … so that other load affects all sides alike."""
    results: dict[str, list[dict]] = {name: [] for name, _ in sides}
    for number in range(1, rounds + 1):
        for name, measurement in sides:
            result = measurement()
            results[name].append(result)
            log(f"round {number} of {rounds}, {name}: {result['cpu']:.2f} CPU s, {result['wall']:.2f} s")
    return results


def alternate_slices(
    sides: Sequence[tuple[str, Callable[[], Worker]]], slices: int, rounds: int, log: Callable[[str], None]
) -> dict[str, list[dict]]:
    """Runs all sides in turn: a slice of A, a slice of B, …, each well under some seconds.

    A shared machine changes its speed from second to second, so whole runs one after another are not comparable.
    """
    results: dict[str, list[dict]] = {name: [] for name, _ in sides}
    for number in range(1, rounds + 1):
        with contextlib.ExitStack() as stack:
            workers = {}
            for name, start in sides:
                workers[name] = stack.enter_context(start())
                workers[name].read()  # it is warm
            for _ in range(slices):
                for name, worker in workers.items():
                    results[name].append(worker.go())
        costs = []
        for name, values in results.items():
            latest = values[-slices:]
            micros = 1e6 * sum(value["cpu"] for value in latest) / sum(value["examples"] for value in latest)
            costs.append(f"{name} {micros:.1f}")
        log(f"round {number} of {rounds}, CPU µs per example: {', '.join(costs)}")
    return results


def median(results: Sequence[dict], key: str) -> float:
    return statistics.median(result[key] for result in results)
