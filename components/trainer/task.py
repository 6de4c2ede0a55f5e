"""One training task, always a fresh process.

Fresh, because collectives and logical devices must be set up before any TensorFlow op runs, and a local TFX runner has
long since run some.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import traceback

from components.trainer.job import Job, TaskFiles
from components.trainer.progress import ProgressWriter
from pipeline.errors import TfxEstimatorError

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Runs the task.

    Args:
        argv: Path of the job, name of the task, number of the attempt.

    Returns:
        The exit code: 0, or that of the error.
    """
    job_path, task, attempt = argv
    job = Job.load(job_path)
    files = TaskFiles(os.path.dirname(job_path), task, int(attempt))
    _die_with(job.supervisor_pid)
    try:
        # Heavy, and only after the lines above: a supervisor that dies during the import leaves no orphan.
        from components.trainer import training

        training.run(job, ProgressWriter(files.progress))
    except BaseException as error:
        traceback.print_exc()
        _write_error(files.error, error)
        return error.exit_code if isinstance(error, TfxEstimatorError) else 1
    return 0


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when the supervisor dies, SIGKILL included."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _write_error(path: str, error: BaseException) -> None:
    """Leaves the error for the supervisor, with the lines of the user's code where there are any."""
    ours = isinstance(error, TfxEstimatorError)
    said = {
        "type": type(error).__name__,
        "what": error.what if isinstance(error, TfxEstimatorError) else str(error),
        "expected": error.expected if isinstance(error, TfxEstimatorError) else "",
        "todo": error.todo if isinstance(error, TfxEstimatorError) else "",
        "where": "" if ours else _where(error),
    }
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(said, file)
    os.replace(f"{path}.tmp", path)


def _where(error: BaseException) -> str:
    """The last lines of the traceback that are neither TensorFlow's nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename] or list(frames)
    return "".join(traceback.format_list(own[-3:])).rstrip()
