"""A task's process: its files, resource usage and end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import ProgressReader
from tfx_estimator.components.trainer.protocol.task_spec import TaskFiles, TaskSpec
from tfx_estimator.pipeline.base.ending.scratch import variables
from tfx_estimator.pipeline.base.environment import no_proxy, without_other_keras
from tfx_estimator.pipeline.base.files import read_json, read_tail
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.faults import read_users_frames

_TICKS = os.sysconf("SC_CLK_TCK")

_TASK = "from tfx_estimator.components.trainer.task import start; sys.exit(start.main(sys.argv[1:]))"
_LOG_LINES = 15
# A longer gap between two calls of `silent` means that the machine was suspended.
_SUSPENDED_SECONDS = 5.0
# Time for the keeper to kill the task's descendants; after that the process group is killed.
_KEEPER_SECONDS = 10.0


class TaskProcess:
    """One task, running or ended.

    Args:
        temporary: Folder for its temporary files.
        environment: Declared variables, which take precedence over the task's own.
        network: File descriptors of the private network's namespaces.
    """

    def __init__(
        self,
        job_path: str,
        task_spec: TaskSpec,
        temporary: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        network: Sequence[int] = (),
    ) -> None:
        self.files = TaskFiles(os.path.dirname(job_path), task_spec.name, task_spec.attempt)
        self.task_spec = dataclasses.replace(task_spec, network=tuple(network))
        self.task_spec.save(self.files.task_spec)
        self.started = time.monotonic()
        self._beat = (0.0, self.started)
        self._checked = self.started
        self._events = ProgressReader(self.files.progress)
        with open(self.files.log, "wb") as log:
            self._process = subprocess.Popen(
                [*loader.fresh_python(_TASK), job_path, self.files.task_spec],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_inherited(task_spec), **environment, **variables(temporary)},
                pass_fds=tuple(network),
                # Ctrl-C goes to the supervisor alone, which then ends its tasks.
                start_new_session=True,
            )

    @property
    def name(self) -> str:
        """For example `worker-1`."""
        return self.task_spec.name

    @property
    def code(self) -> Optional[int]:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def events(self) -> list[dict[str, Any]]:
        """Returns the events since the last call."""
        return self._events.read()

    def step(self) -> int:
        """Returns the last global step; -1 before the first."""
        return self._events.step()

    def silent(self) -> float:
        """Returns the seconds since the last heartbeat; 0 before the first."""
        now, before = time.monotonic(), self._checked
        self._checked = now
        try:
            beat = os.path.getmtime(self.files.alive)
        except FileNotFoundError:
            return 0.0
        # A late check means that the machine was suspended, and the task with it.
        if beat != self._beat[0] or now - before > _SUSPENDED_SECONDS:
            self._beat = (beat, now)
        return now - self._beat[1]

    def log_size(self) -> int:
        """Returns the log's size in bytes; 0 once the chief of an external cluster has moved the log away."""
        try:
            return os.path.getsize(self.files.log)
        except FileNotFoundError:
            return 0

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds of the task and its descendants."""
        return cpu_seconds(self._process.pid)

    def error(self) -> Optional[dict[str, Any]]:
        """Returns the contents of its error file, if there is one."""
        return read_json(self.files.error)

    def exited_early(self) -> bool:
        """True if `os._exit(0)` ended it before its work was done."""
        # A crash writes its stack to the same file.
        with contextlib.suppress(FileNotFoundError):
            return self.code == 0 and os.path.getsize(self.files.ends) > 0
        return False

    def users_frames(self) -> list[str]:
        """Returns the frames of user code in the stack of a task that ended without an error."""
        return read_users_frames(self.files.ends)

    def tail(self) -> str:
        """Returns the last lines of its log, indented."""
        return "\n".join(f"    {line}" for line in read_tail(self.files.log, _LOG_LINES)) or "    (nothing)"

    def kill(self) -> None:
        """Kills the task and its descendants. Multi-worker tasks swallow SIGTERM: see `keep`."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            # Goes to the keeper, which ends the task by SIGKILL. Not after its end: the pid may have been reused.
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
                self._process.send_signal(signal.SIGCONT)
                self._process.wait(_KEEPER_SECONDS)
        # Also after the keeper's end, because descendants of the task may still be in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _inherited(task_spec: TaskSpec) -> dict[str, str]:
    """Returns the parent's environment with the task's thread count, and without variables that mislead a task."""
    # Each task gets its own TF_CONFIG. Keras is chosen here for pipelines without a declaration.
    kept = without_other_keras(os.environ)
    inherited = {name: value for name, value in kept.items() if name != "TF_CONFIG"}
    if task_spec.threads == 1:
        # The task shares its cores with tasks that train, or there are more tasks than cores.
        inherited["TF_NUM_INTRAOP_THREADS"] = "1"
    elif task_spec.threads:
        # The task's share of the container's CPUs; a variable that the user has exported takes precedence.
        inherited.setdefault("TF_NUM_INTRAOP_THREADS", str(task_spec.threads))
    return {
        **inherited,
        **no_proxy(os.environ, _own_host(task_spec.tf_config)),
        # For processes that the task starts. The task's own module path is in its command.
        "PYTHONPATH": loader.python_path(),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
    }


def _own_host(tf_config: str) -> tuple[str, ...]:
    """Returns this machine's host name in the cluster, by which its tasks reach themselves."""
    if not tf_config:
        return ()
    config = json.loads(tf_config)
    task = config["task"]
    addresses = config["cluster"].get(task["type"], ())
    return tuple(each.rpartition(":")[0].strip("[]") for each in addresses[task["index"] : task["index"] + 1])


def cpu_seconds(root: int) -> float:
    """Returns the user and system seconds of a process and its descendants; 0 if the process has gone.

    An ended process's time counts for the parent that waited for it, and is lost if none did.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        # The process may end meanwhile.
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            # pid (name, with any characters) state parent …; fields 14 to 17 are the times, its children's last.
            fields = file.read().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(name))
            ticks[int(name)] = sum(map(int, fields[11:15]))
    found, below = 0, [root]
    while below:
        pid = below.pop()
        found += ticks.get(pid, 0)
        below += children.get(pid, ())
    return found / _TICKS
