"""A finished process keeps its exit code and ends in time, whatever blocks Python; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.root import ROOT, run_python
from tfx_estimator.pipeline.base.ending import leaving, signals
from tfx_estimator.pipeline.base.errors import RETRYABLE, StoppedError, TaskFailedError, UserCodeError

pytestmark = [pytest.mark.unit, pytest.mark.timeout(90)]

WORK = """
import atexit, concurrent.futures, multiprocessing, os, signal, sys, threading, time
from tfx_estimator.pipeline.base.ending.keeper import keep
from tfx_estimator.pipeline.base.ending.leaving import leave_within

SECONDS = float(sys.argv[1])
end_within = keep(os.getppid())
atexit.register(print, "the hook was called", flush=True)
{left}
print("the work is done", flush=True)
leave_within(SECONDS, 3, {report})
end_within(3, 1.75 * SECONDS)
sys.exit(3)
"""
LEFT = {
    "threading.Thread(target=time.sleep, args=(300,), name='sender').start()": ["the thread 'sender'"],
    "multiprocessing.Process(target=time.sleep, args=(300,), name='reader').start()": ["the process 'reader'"],
    "concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 300)": ["the thread 'ThreadPoolExecutor-0_0'"],
    "concurrent.futures.ProcessPoolExecutor(1).submit(time.sleep, 300)": ["the thread", "the process"],
    # The user's own alarm.
    "signal.setitimer(signal.ITIMER_REAL, 0.5); threading.Thread(target=time.sleep, args=(300,), name='a').start()": [
        "the thread 'a'"
    ],
}
NOTICE = "the work of this process is done; not waited for after 1 s: "


def run(left: str, seconds: float = 1.0, report: str = "None") -> tuple[str, float]:
    """Returns the output, and the seconds since the end of the work, which are few; the exit code is as it was."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", WORK.format(left=left, report=report), str(seconds)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = ""
    while not output.endswith("the work is done\n"):
        output += process.stdout.readline()
        assert process.poll() is None, output
    done = time.monotonic()
    output += process.stdout.read()
    assert process.wait() == 3
    waited = time.monotonic() - done
    assert waited < 15
    return output, waited


@pytest.mark.parametrize("left", LEFT)
def test_leftovers_are_named_and_not_waited_for(left):
    before = psutil.Process().children(recursive=True)
    output, seconds = run(left)
    assert seconds > 0.9
    (line,) = [each for each in output.splitlines() if each.startswith(NOTICE)]
    assert all(name in line for name in LEFT[left])
    # Only the waiting is cut off.
    assert output.count("the hook was called") == 1
    assert not set(psutil.Process().children(recursive=True)) - set(before)


@pytest.mark.parametrize(
    "left",
    [
        "",
        "threading.Thread(target=time.sleep, args=(1,)).start()",
        "multiprocessing.Process(target=time.sleep, args=(300,), daemon=True).start()",
    ],
)
def test_a_process_that_can_end_normally_does_so(left):
    output, _ = run(left, seconds=30.0)
    assert output.splitlines()[-2:] == ["the work is done", "the hook was called"]


@pytest.mark.parametrize("report", ["lambda text: print('told:', text, flush=True)", "lambda text: open('/no/such')"])
def test_leftovers_are_reported_if_that_is_possible(report):
    left = "threading.Thread(target=time.sleep, args=(300,), name='sender').start()"
    output, _ = run(left, report=report)
    assert f"{NOTICE}the thread 'sender'\n" in output
    assert ("told: not waited for after 1 s: the thread 'sender'\n" in output) == ("print" in report)


def test_a_blocking_atexit_function_is_abandoned_and_none_is_called_twice():
    output, _ = run("atexit.register(time.sleep, 300); atexit.register(print, 'later', flush=True)")
    assert f"{NOTICE}functions of atexit\n" in output
    assert output.count("later") == 1


def test_an_uninterruptible_process_is_killed_by_the_keeper():
    """For example a destructor of TensorFlow that waits for its threads."""
    output, _ = run("class Stuck:\n    def __del__(self): time.sleep(300)\nstuck = Stuck()")
    assert "the work of this process is done, and it did not end itself: it was killed\n" in output
    assert "the hook was called" in output


def raising(error: BaseException):
    def work() -> None:
        raise error

    return work


def lost() -> TaskFailedError:
    error = TaskFailedError("a worker has gone")
    error.retryable = True
    return error


@pytest.mark.parametrize(
    ("error", "code", "again"),
    [
        (UserCodeError("no such layer"), 4, 4),
        (StoppedError("at a checkpoint", exit_code=130), 130, 130),
        (lost(), 5, 99),
        (signals.SignalledError(signal.SIGTERM), 143, 143),
    ],
)
def test_an_error_is_printed_and_becomes_an_exit_code(monkeypatch, capsys, error, code, again):
    assert leaving.exit_code(raising(error)) == code
    assert capsys.readouterr().err == f"{error}\n"
    monkeypatch.setenv(RETRYABLE, "99")
    assert leaving.exit_code(raising(error)) == again
    assert leaving.exit_code(lambda: 7) == 7


# Like __main__, with a training that ends by a signal.
_REPLICA = """
import os, runpy, signal, sys
from tfx_estimator.components.trainer import executor
executor.Executor.Do = lambda *args: os.kill(os.getpid(), signal.SIGTERM)
from tfx_estimator.pipeline.platforms.vertex import call
call.read_call = lambda folder: ({}, {}, {})
sys.argv[1:] = ["--call", sys.argv[1], "--roles", "chief"]
runpy.run_module("tfx_estimator.pipeline.platforms.vertex.replica", run_name="__main__")
"""


@pytest.mark.long
def test_a_replica_of_a_custom_job_names_the_signal_that_ended_it(tmp_path):
    done = run_python("-c", _REPLICA, str(tmp_path))
    assert (done.returncode, "ended by SIGTERM" in done.stderr) == (143, True), done.stderr
