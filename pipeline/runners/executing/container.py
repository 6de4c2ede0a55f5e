"""A container's command as a process of this machine, with a log, tries, and an end in order."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx_estimator.components.trainer.custom_job.service import REHEARSAL
from tfx_estimator.pipeline.base.ending import keeper, scratch, shared_status
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.base.log import get_logger

# For a training to reach a checkpoint.
_END_SECONDS = 60.0
_TAIL_LINES = 15
# Of this process: a container has neither these modules nor this place in a cluster.
_NOT_INHERITED = ("PYTHONPATH", "TF_CONFIG", "CLUSTER_SPEC", "KFP_POD_NAME", "SLURM_", "SLURMD_")

logger = get_logger("executing")


@dataclass(frozen=True)
class Command:
    """What a container starts.

    Args:
        words: The command and its arguments, filled in.
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]


def start(command: Command, logs: str, tries: int) -> None:
    """Starts a container's command until it succeeds.

    Args:
        logs: Folder of the logs; each try leaves one.

    Raises:
        PipelineError: It failed each time.
    """
    for attempt in range(1, tries + 1):
        log = os.path.join(logs, f"{command.name}{f'-{attempt}' if attempt > 1 else ''}.log")
        status = _start_once(command, log)
        if status == 0:
            return
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        if attempt < tries:
            logger.warning(f"its container {how}: try {attempt + 1} of {tries}")
    again = f", {tries} times" if tries > 1 else ""
    end = "\n".join(read_tail(log, _TAIL_LINES)) or "(it printed nothing)"
    raise PipelineError(
        f"component {command.name} failed: its container {how}{again}\n{end}",
        expected="a container that ends with exit code 0",
        todo=f"see {log}",
    )


def _start_once(command: Command, log: str) -> int:
    """Returns the exit code, negative for a signal."""
    python, *rest = command.words
    with scratch.made() as temporary, open(log, "wb") as file:
        # Nothing of the folder that this was started in can be imported.
        folder = os.path.join(temporary, f"container-{os.getpid()}")
        os.makedirs(folder, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        process = _popen(
            command.name,
            keeper.dying_with_this([sys.executable if python == "python" else python, *rest]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**inherited, **scratch.variables(temporary), **command.env, REHEARSAL: "1"},
            # Ctrl-C is for this process, which then ends the container.
            start_new_session=True,
        )
        try:
            return process.wait()
        finally:
            _end(process)


def _popen(name: str, words: list[str], **options: Any) -> subprocess.Popen:
    try:
        return subprocess.Popen(words, **options)
    except OSError as error:
        todo = "see whether its command is there, and make room for processes"
        if error.errno == errno.E2BIG:
            todo = "shorten what it is told, and compile it anew: no service can start it either"
        raise PipelineError(
            f"component {name} failed: its container cannot be started: {error.strerror}",
            expected="a command that this machine can start, with arguments of at most 128 kB each",
            todo=todo,
        ) from error


def _end(process: subprocess.Popen) -> None:
    """Ends it as a service does, SIGTERM first, with all that it started."""
    with shared_status.patient():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
