"""Injects a fault into a task of a training."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import psutil

_POLL_SECONDS = 0.02
# The temporary folder of an Estimator's export; the Keras paths report the start.
_BEING_EXPORTED = "training/*/export/*/temp-*"
STARTING, TRAINING, EXPORTING = "starting", "training", "exporting"


class Fault:
    """A fault that happens once, to one task, at a moment.

    Args:
        task: Name of the task, for example `worker-0`.
        moment: `starting` (its process is a second old), `training` (the chief has done `step` steps) or `exporting`
            (the model is being written, or, for a task that trains, the last step is done).
        act: The action on its process.
        step: The step for `training`.
        last_step: The last step of the training.
        after: Another fault that must happen before.
    """

    def __init__(
        self,
        task: str,
        moment: str,
        act: Callable[[psutil.Process], Any],
        step: int = 30,
        last_step: int = 150,
        after: Optional[Fault] = None,
    ) -> None:
        self.task, self.moment = task, moment
        self._act, self._step, self._last_step, self._after = act, step, last_step, after
        self._thread: Optional[threading.Thread] = None
        # The same on the clock of process creation times, which the kernel counts from boot: the two drift apart.
        self._on_kernels_clock = 0.0
        # time.time() of the fault; 0 before it.
        self.happened = 0.0

    def __str__(self) -> str:
        return f"{self.task} while {self.moment}: {'happened' if self.happened else 'did not happen'}"

    def watch(self, root: Path, over: threading.Event) -> None:
        self._thread = threading.Thread(target=self._wait, args=(root, over), daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        if self._thread:
            self._thread.join(seconds)

    def is_over_for(self, process: psutil.Process) -> bool:
        return bool(self.happened) and process.create_time() > self._on_kernels_clock

    def _wait(self, root: Path, over: threading.Event) -> None:
        while not over.is_set():
            time.sleep(_POLL_SECONDS)
            process = find_task(self.task)
            if self._after is not None and not (process and self._after.is_over_for(process)):
                continue
            if process is None or not self._is_now(root, process):
                continue
            try:
                self._act(process)
            except psutil.NoSuchProcess:
                continue
            self.happened = time.time()
            self._on_kernels_clock = psutil.boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME)
            return

    def _is_now(self, root: Path, process: psutil.Process) -> bool:
        if self.moment == STARTING:
            return time.time() - process.create_time() > 1.0
        if self.moment == EXPORTING and self.task.startswith(("evaluator", "exporter")):
            return any(root.glob(_BEING_EXPORTED)) or _has_event(root, self.task, '{"event": "exporting"')
        wanted = self._step if self.moment == TRAINING else self._last_step
        return latest_step(root) >= wanted


def find_task(name: str) -> Optional[psutil.Process]:
    """Returns a task's running process: the last that writes its log, because its parent, the keeper, does so too."""
    found = None
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):
            if f"/{name}.attempt-" in os.readlink(f"/proc/{process.pid}/fd/1"):
                found = process
    return found


def _has_event(root: Path, task: str, event: str) -> bool:
    files = root.glob(f"training/*/logs/{task}.*.progress.jsonl")
    return any(line.startswith(event) for path in files for line in path.read_text().splitlines())


def latest_step(root: Path) -> int:
    steps = [-1]
    for path in root.glob("training/*/logs/chief-0.*.progress.jsonl"):
        for line in path.read_text().splitlines():
            if line.startswith('{"event": "step"') and line.endswith("}"):
                steps.append(json.loads(line)["step"])
    return max(steps)
