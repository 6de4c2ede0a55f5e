"""Emulates a container: fills in its command's placeholders, and runs it as a local process with a log and retries.

Source: https://www.kubeflow.org/docs/components/pipelines/user-guides/components/; `{{$}}` is used by TFX.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.ending import keeper, scratch, shared_status
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import REHEARSAL

# Grace period, for a training to write a checkpoint.
_END_SECONDS = 60.0
_TAIL_LINES = 15
# Variables of this process that a container does not have: its modules and its place in a cluster.
_NOT_INHERITED = ("PYTHONPATH", "TF_CONFIG", "CLUSTER_SPEC", "KFP_POD_NAME", "SLURM_", "SLURMD_")

_WHOLE = "{{$}}"
_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+)\}\}")
_PART = re.compile(r"\.?([A-Za-z_]+)|\['([^']*)'\]")

logger = get_logger("executing")


@dataclass(frozen=True)
class Command:
    """A container's command.

    Args:
        words: The command and its arguments, with placeholders filled in.
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]


def start(command: Command, logs: str, tries: int) -> None:
    """Runs a container's command until it succeeds.

    Args:
        logs: Folder of the logs, one of each try.

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
        # An empty working directory: nothing of the current one can be imported.
        folder = os.path.join(temporary, f"container-{os.getpid()}")
        os.makedirs(folder, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        process = subprocess.Popen(
            keeper.dying_with_this([sys.executable if python == "python" else python, *rest]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**inherited, **scratch.variables(temporary), **command.env, REHEARSAL: "1"},
            # Ctrl-C reaches this process only, which then ends the container.
            start_new_session=True,
        )
        try:
            return process.wait()
        finally:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    """Ends it with all of its children as a service does, SIGTERM first."""
    with shared_status.patient():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(text: str, executor_input: Mapping[str, Any]) -> str:
    """Fills in an argument's placeholders.

    Raises:
        PipelineError: A placeholder has no value.
    """
    # In one pass: a filled-in value may look like a placeholder itself.
    return "".join(
        json.dumps(executor_input, sort_keys=True)
        if piece == _WHOLE
        else _PLACEHOLDER.sub(lambda found: _text(_look_up(found[1], executor_input)), piece)
        for piece in re.split(r"(\{\{\$\}\})", text)
    )


def _look_up(path: str, executor_input: Mapping[str, Any]) -> Any:
    names = [word or key for word, key in _PART.findall(path)]
    value: Any = executor_input
    try:
        if names[:2] == ["inputs", "parameters"]:
            names[1] = "parameterValues"
        elif names[:2] == ["outputs", "output_file"]:
            names[1] = "outputFile"
        for place, name in enumerate(names):
            value = value[name]
            if place == 2 and names[1] == "artifacts":
                value = value["artifacts"][0]
    except (KeyError, IndexError, TypeError) as error:
        raise PipelineError(
            f"the placeholder {{{{$.{path}}}}} has no value here",
            expected="an input or an output of the task",
            todo="compile the pipeline again, or see whether this placeholder is emulated here",
        ) from error
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
