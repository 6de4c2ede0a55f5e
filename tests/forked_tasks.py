"""Forks training tasks from a process that has imported their modules, which saves 6 s of CPU time per task.

    python -u -m tests.forked_tasks FD

forks a process for each request on a socket. The task must be a child of the requesting process: that process is a
subreaper while the intermediate process ends, and so adopts the task. No TensorFlow op runs before the fork. The
containers of `execute` can be forked as well.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.supervisor import process
from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.platforms.rehearsal import container

_MOST_BYTES, _MOST_FDS = 1 << 20, 8
# Process ids of the servers, which run as long as the tests.
SERVERS: set[int] = set()


class _Child(subprocess.Popen):
    """An existing child of this process."""

    def __init__(self, words: Sequence[str], pid: int) -> None:
        self.args, self.pid, self.returncode = words, pid, None
        self._child_created, self._waitpid_lock = True, threading.Lock()
        self.stdin = self.stdout = self.stderr = None


class _Starter:
    """Replaces `subprocess.Popen` in TaskProcess and containers: has a server fork the process."""

    def __init__(self, channel: socket.socket, begin: Callable[[], Any] = lambda: None) -> None:
        # Starts the server with the first task.
        self._channel, self._begin, self._lock = channel, functools.cache(begin), threading.Lock()

    def __call__(
        self,
        words: list[str],
        *,
        stdout: IO,
        env: dict[str, str],
        pass_fds: Sequence[int] = (),
        cwd: str | None = None,
        **_: Any,
    ) -> subprocess.Popen:
        request = {"words": words, "env": env, "fds": [1, *pass_fds], "folder": cwd or os.getcwd()}
        with self._lock:
            self._begin()
            keeper.adopt()
            try:
                socket.send_fds(self._channel, [json.dumps(request).encode()], [stdout.fileno(), *pass_fds])
                return _Child(words, int(self._channel.recv(_MOST_BYTES)))
            finally:
                keeper._prctl(keeper._PR_SET_CHILD_SUBREAPER, 0)


@contextlib.contextmanager
def forked(containers: int = -1, fresh: int = 0) -> Iterator[None]:
    """Forks the tasks of this process from a copy of it, which must have only one thread.

    Args:
        containers: Number of containers of `execute` that start as for users before others are forked; -1 forks none.
        fresh: Number of tasks that start as for users before others are forked.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if not os.fork():
        ours.close()
        keeper.die_with(parent)
        _serve(theirs)
        os._exit(0)
    theirs.close()
    starter = _Starter(ours)
    with (
        ours,
        _in_place(_after(fresh, starter)),
        contextlib.nullcontext() if containers < 0 else _in_place(_after(containers, starter), container),
    ):
        yield


@contextlib.contextmanager
def forked_from_server() -> Iterator[None]:
    """Forks the tasks of this process from a separate server process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-u", "-m", "tests.forked_tasks", str(theirs.fileno())]
    with contextlib.ExitStack() as stack:
        stack.enter_context(theirs)

        def begin() -> None:
            server = stack.enter_context(subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()]))
            theirs.close()
            SERVERS.add(server.pid)

        with ours, _in_place(_Starter(ours, begin)):
            yield


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Starts each task in a fresh Python, as for users."""
    with _in_place(subprocess.Popen):
        yield


@contextlib.contextmanager
def _in_place(popen: Callable, owner: types.ModuleType = process) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "subprocess", types.SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
        yield


def _after(count: int, starter: Callable) -> Callable:
    """Returns a starter that starts the first `count` processes as usual."""
    starts = itertools.chain([subprocess.Popen] * count, itertools.repeat(starter))
    return lambda *words, **options: next(starts)(*words, **options)


def _serve(channel: socket.socket) -> None:
    while True:
        text, fds, *_ = socket.recv_fds(channel, _MOST_BYTES, _MOST_FDS)
        if not text:
            return
        reader, writer = os.pipe()
        if not (between := os.fork()):
            me = os.getpid()
            if pid := os.fork():
                os.write(writer, str(pid).encode())
                os._exit(0)
            channel.close()
            while os.getppid() == me:
                time.sleep(0.001)
            _run_task(**json.loads(text), given=fds)
        os.waitpid(between, 0)
        channel.send(os.read(reader, 20))
        for fd in (reader, writer, *fds):
            os.close(fd)


def _run_task(words: list[str], env: dict[str, str], fds: list[int], folder: str, given: list[int]) -> None:
    """Does the same as the command `python -c CODE …`, or `python keeper.py … python -m MODULE …`."""
    import numpy as np

    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        for number, fd in zip(fds, given):
            os.dup2(fd, number)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(env)
        sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
        # The temporary folder at the server's start may have been removed.
        tempfile.tempdir = None
        # Python's own generator is reseeded after a fork; NumPy's is not.
        np.random.seed()
        if words[1] == "-c":
            sys.argv = ["-c", *words[3:]]
            exec(compile(words[2], "<string>", "exec"), {"__name__": "__main__"})
        else:
            _run_container(int(words[4]), *words[7:])
        code = 0
    except SystemExit as end:
        code = end.code or 0
        # As at the normal end of a process.
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run_container(parent: int, module: str, *arguments: str) -> None:
    keeper.die_with(parent)
    sys.argv = [module, *arguments]
    with forked():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _import_all() -> None:
    from tfx_estimator.components.trainer.task import light_imports

    light_imports.apply()
    with uncollected():
        from tfx_estimator.components.trainer.estimator import path  # noqa: F401
        from tfx_estimator.components.trainer.task import paths, runtime, user_code  # noqa: F401


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
    _channel = socket.socket(fileno=int(sys.argv[1]))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    _import_all()
    _serve(_channel)
