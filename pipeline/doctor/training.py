"""Examines whether a cluster of two processes trains here. Standard library only: the training is another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.doctor.machine import FAILED, Finding, ok
from tfx_estimator.pipeline.user_source.modules import package_parent

_NAME = "training"
_SMOKE = "tfx_estimator.pipeline.doctor.smoke"
# Of somebody else's cluster, which is not asked to take part.
_CLUSTERS = ("TF_CONFIG", "SLURM_")
_LINES, _SHOWN = 50, 600
_END_SECONDS = 10.0


def check_training(seconds: float = 240.0, environment: Mapping[str, str] = os.environ) -> Finding:
    """Trains for some steps, as the Trainer does: supervised, two processes, up to the exported model."""
    own = {name: value for name, value in environment.items() if not name.startswith(_CLUSTERS)}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (str(package_parent()), own.get("PYTHONPATH"))))
    started = time.monotonic()
    with scratch.made() as home, tempfile.TemporaryDirectory(dir=home) as folder:
        log = os.path.join(folder, "log")
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", _SMOKE, folder, str(os.getpid())],
                env=own,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        said = read_tail(log, _LINES)
    if code == 0:
        return ok(_NAME, f"two processes trained and exported a model in {time.monotonic() - started:.0f} s")
    what = f"two processes did not train within {seconds:g} s" if code is None else _told(said, code)
    todo = "mend what is said above; where all else is ok, a firewall or a security module may forbid it"
    return Finding(_NAME, FAILED, what, todo)


def _end(process: subprocess.Popen) -> None:
    """Ends the training's supervisor, in order if it can; its tasks end with it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                continue


def _told(said: Sequence[str], code: int) -> str:
    """What the training says last: an error of this project, which it prints without a traceback, or another's end."""
    lines = [line.strip() for line in said if line.strip()]
    shown = " ".join(lines[-4:])[-_SHOWN:] if lines else f"it ended with {code}"
    return f"two processes cannot train: {shown}"
