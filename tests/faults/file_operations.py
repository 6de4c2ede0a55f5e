"""Ends or disturbs a process before a given file operation, by strace's fault injection."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.root import ROOT
from tests.waiting import wait_until

# Calls that change files; openat(2) also reads, see `operations`.
_CALLS = (
    "openat,creat,write,pwrite64,sendfile,copy_file_range,ftruncate,fsync,fdatasync,flock,"
    "rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir"
)
_LINE = re.compile(r"^\d+ +(\w+)\((.*)$")
_DEADLINE_SECONDS = 60.0


def need_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: it injects the faults")
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"processes cannot be traced here: {tried.stderr.strip()}")


@dataclass(frozen=True)
class Operation:
    """A file operation of a process: the nth call of that name after the process stopped itself."""

    call: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.call} {self.number}: {self.text}"


class Forks:
    """Calls a function in forked copies of one process: see tests/faults/forks.py.

    `target` is `module:function`, which stops its process by `stop_here` before the traced operations.
    """

    def __init__(self, target: str, folder: Path) -> None:
        self._folder, self._logs = folder, 0
        self._log_files: dict[int, Path] = {}
        self._command = [sys.executable, "-m", "tests.faults.forks", target]
        self._begin()

    def _begin(self) -> None:
        self._server = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._response() == "ready"

    def close(self) -> None:
        """Ends the process, and with it a hanging call."""
        self._server.stdin.close()
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()

    @property
    def output(self) -> str:
        return (self._folder / f"{self._logs}.log").read_text()

    @property
    def result(self) -> str:
        return self.output.splitlines()[-1]

    def call(self, *arguments: object) -> int:
        return self.wait(self.start(*arguments))

    def run(self, *arguments: object, code: int = 0) -> str:
        """Calls the function, which must end with a code; returns its output."""
        ended = self.call(*arguments)
        assert ended == code, self.output
        return self.output

    def start(self, *arguments: object) -> int:
        if self._server.poll() is not None:
            self._begin()
        self._logs += 1
        log = self._folder / f"{self._logs}.log"
        pid = self._request(arguments=arguments, log=str(log))
        self._log_files[pid] = log
        return pid

    def output_of(self, pid: int) -> str:
        return self._log_files[pid].read_text()

    def wait(self, pid: int) -> int:
        """Returns the exit code of a started call."""
        return self._request(wait=pid)

    def operations(self, *arguments: object, within: str) -> list[Operation]:
        """Calls the function, and lists the operations that change files."""
        trace = self._folder / "trace"
        code = self._traced(arguments, "-y", "-o", str(trace), "-e", f"trace={_CALLS}")
        assert code == 0, self.output
        counts: dict[str, int] = {}
        found = []
        for match in filter(None, map(_LINE.match, trace.read_text().splitlines())):
            call, text = match.groups()
            counts[call] = counts.get(call, 0) + 1
            reads = call == "openat" and "O_CREAT" not in text
            if within in text and not reads:
                found.append(Operation(call, counts[call], text[:160]))
        return found

    def disturbed(self, *arguments: object, operation: Operation, fault: str = "signal=KILL") -> int:
        """Calls the function with a fault before one of its operations.

        `fault` has the syntax of strace's `-e inject=`; returns the exit code, negative for a signal.
        """
        fault = f"inject={operation.call}:{fault}:when={operation.number}"
        return self._traced(arguments, "-o", os.devnull, "-e", f"trace={operation.call}", "-e", fault)

    def _traced(self, arguments: tuple, *options: str) -> int:
        pid = self.start(*arguments)
        self.wait_for_stop(pid)
        command = ["strace", "-f", "-p", str(pid), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert "attached" in strace.stderr.readline()
            os.kill(pid, signal.SIGCONT)
            code = self.wait(pid)
            strace.communicate(timeout=_DEADLINE_SECONDS)
        return code

    def wait_for_stop(self, pid: int) -> None:
        """Waits until a started call has stopped itself."""

        def has_stopped() -> bool:
            assert psutil.pid_exists(pid), f"the process ended before it stopped itself:\n{self.output}"
            return psutil.Process(pid).status() == psutil.STATUS_STOPPED

        place = "the place where the process stops"
        wait_until(has_stopped, lambda: f"{place}:\n{self.output}", _DEADLINE_SECONDS, every=0.005)

    def _request(self, **request: object) -> int:
        try:
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            return int(self._response())
        except BaseException:
            # The test has timed out: the pending answer would be taken for the next one's.
            self._server.kill()
            self._server.wait()
            raise

    def _response(self) -> str:
        return self._server.stdout.readline().strip()


def stop_here(wanted: bool = True) -> None:
    if wanted:
        os.kill(os.getpid(), signal.SIGSTOP)
