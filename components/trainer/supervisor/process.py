"""The operating system's process of one task, its files, and how it ended."""

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
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.faults import read_users_frames

_TICKS = os.sysconf("SC_CLK_TCK")

_TASK = "from tfx_estimator.components.trainer.task import start; sys.exit(start.main(sys.argv[1:]))"
_LOG_LINES = 15
_LATE_LOOK_SECONDS = 5.0
# Time for the keeper to kill what the task started; after that the process group is killed.
_KEEPER_SECONDS = 10.0


class TaskProcess:
    """One task, running or ended.

    Args:
        task_spec: What the task is told.
        temporary: Folder for its temporary files.
        environment: Variables that are declared; they come before the task's own.
        network: Descriptors of the private network's namespaces.
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
        self._looked = self.started
        self._events = ProgressReader(self.files.progress)
        with open(self.files.log, "wb") as log:
            self._process = subprocess.Popen(
                [*loader.fresh_python(_TASK), job_path, self.files.task_spec],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_inherited(task_spec), **environment, **variables(temporary)},
                pass_fds=tuple(network),
                # Ctrl-C is for the supervisor, which then ends its tasks.
                start_new_session=True,
            )

    @property
    def name(self) -> str:
        """For example `worker-1`."""
        return self.task_spec.name

    @property
    def code(self) -> Optional[int]:
        """The exit code, negative for a signal; None as long as it runs."""
        return self._process.poll()

    def events(self) -> list[dict[str, Any]]:
        """What the task has reported since the last call."""
        return self._events.read()

    def step(self) -> int:
        """The global step that it did last; -1 before the first."""
        return self._events.step()

    def silent(self) -> float:
        """Seconds since its interpreter last showed that it runs; 0 before the first time."""
        now, before = time.monotonic(), self._looked
        self._looked = now
        try:
            beat = os.path.getmtime(self.files.alive)
        except FileNotFoundError:
            return 0.0
        # If this look comes late, the machine was suspended, and the task with it: its heartbeat is not to blame.
        if beat != self._beat[0] or now - before > _LATE_LOOK_SECONDS:
            self._beat = (beat, now)
        return now - self._beat[1]

    def log_size(self) -> int:
        """Bytes that it printed; 0 where the chief of somebody else's cluster has moved the log to its place."""
        try:
            return os.path.getsize(self.files.log)
        except FileNotFoundError:
            return 0

    def cpu_seconds(self) -> float:
        """What it and all that it has started have used of the CPU."""
        return cpu_seconds(self._process.pid)

    def error(self) -> Optional[dict[str, Any]]:
        """The error that it wrote, where it had time to."""
        if not os.path.exists(self.files.error):
            return None
        with open(self.files.error, encoding="utf-8") as file:
            return json.load(file)

    def left(self) -> bool:
        """Did `os._exit(0)` end it before its work was done."""
        # A crash leaves its stack there as well.
        with contextlib.suppress(FileNotFoundError):
            return self.code == 0 and os.path.getsize(self.files.ends) > 0
        return False

    def users_frames(self) -> list[str]:
        """The user's lines at work when it ended without a word; none if there were none."""
        return read_users_frames(self.files.ends)

    def tail(self) -> str:
        """The last lines of its log, indented."""
        return "\n".join(f"    {line}" for line in read_tail(self.files.log, _LOG_LINES)) or "    (nothing)"

    def kill(self) -> None:
        """Ends it and whatever it started, for good. SIGTERM would be swallowed by multi-worker tasks: see `keep`."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            # Goes to the keeper, which ends the task by SIGKILL. Not if it has ended, because its number may be another
            # process's by now.
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
                self._process.send_signal(signal.SIGCONT)
                self._process.wait(_KEEPER_SECONDS)
        # Also after the keeper's end, because what the task started may still be in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _inherited(task_spec: TaskSpec) -> dict[str, str]:
    """The parent's environment, with the task's threads, and without what would lead it astray."""
    # Each task gets a TF_CONFIG of its own. Keras is chosen here as well, for a task of somebody else's pipeline.
    given = without_other_keras(os.environ)
    inherited = {name: value for name, value in given.items() if name != "TF_CONFIG"}
    if task_spec.threads == 1:
        # The task runs beside those that train, or there are more tasks than cores.
        inherited["TF_NUM_INTRAOP_THREADS"] = "1"
    elif task_spec.threads:
        # The task's share of the container's CPUs; a variable that the user has exported goes first.
        inherited.setdefault("TF_NUM_INTRAOP_THREADS", str(task_spec.threads))
    return {
        **inherited,
        **no_proxy(os.environ, _own_host(task_spec.tf_config)),
        # For processes that the task starts. The task itself gets its module path by its command.
        "PYTHONPATH": loader.python_path(),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
    }


def _own_host(tf_config: str) -> tuple[str, ...]:
    """The name of this machine in its cluster, by which its tasks reach themselves."""
    if not tf_config:
        return ()
    config = json.loads(tf_config)
    task = config["task"]
    addresses = config["cluster"].get(task["type"], ())
    return tuple(each.rpartition(":")[0].strip("[]") for each in addresses[task["index"] : task["index"] + 1])


def cpu_seconds(root: int) -> float:
    """Returns the seconds that a process and all below it have used, of user and system; 0 where it has gone.

    The time of one that has ended is its parent's, which waited for it; where nobody did, it is lost.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        # The process may end meanwhile.
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            # pid (a name, which may hold anything) state parent …; from the 14th on the times, at last its children's.
            fields = file.read().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(name))
            ticks[int(name)] = sum(map(int, fields[11:15]))
    found, below = 0, [root]
    while below:
        pid = below.pop()
        found += ticks.get(pid, 0)
        below += children.get(pid, ())
    return found / _TICKS
