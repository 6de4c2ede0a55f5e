"""A process whose work is done: its exit code, and that it ends in time whatever holds Python up, as real processes."""

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
leave_within(SECONDS, 3, {tell})
end_within(3, 1.75 * SECONDS)
sys.exit(3)
"""
LEFT = {
    "threading.Thread(target=time.sleep, args=(300,), name='sender').start()": ["the thread 'sender'"],
    "multiprocessing.Process(target=time.sleep, args=(300,), name='reader').start()": ["the process 'reader'"],
    "concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 300)": ["the thread 'ThreadPoolExecutor-0_0'"],
    "concurrent.futures.ProcessPoolExecutor(1).submit(time.sleep, 300)": ["the thread", "the process"],
    # An alarm of its own, which is not ours.
    "signal.setitimer(signal.ITIMER_REAL, 0.5); threading.Thread(target=time.sleep, args=(300,), name='a').start()": [
        "the thread 'a'"
    ],
}
TOLD = "the work of this process is done; not waited for after 1 s: "


def run(left: str, seconds: float = 1.0, tell: str = "None") -> tuple[int, str, float]:
    """The exit code, what was said, and how long it took from the end of the work on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", WORK.format(left=left, tell=tell), str(seconds)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    said = ""
    while not said.endswith("the work is done\n"):
        said += process.stdout.readline()
        assert process.poll() is None, said
    done = time.monotonic()
    said += process.stdout.read()
    return process.wait(), said, time.monotonic() - done


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_is_named_and_not_waited_for(left):
    before = psutil.Process().children(recursive=True)
    code, said, seconds = run(left)
    assert code == 3
    assert 0.9 < seconds < 15
    (line,) = [each for each in said.splitlines() if each.startswith(TOLD)]
    assert all(name in line for name in LEFT[left])
    # In vain is only the waiting.
    assert said.count("the hook was called") == 1
    assert not set(psutil.Process().children(recursive=True)) - set(before)


@pytest.mark.parametrize(
    "left",
    [
        "",
        "threading.Thread(target=time.sleep, args=(1,)).start()",
        "multiprocessing.Process(target=time.sleep, args=(300,), daemon=True).start()",
    ],
)
def test_a_process_that_ends_by_itself_does_so_as_ever(left):
    code, said, seconds = run(left, seconds=30.0)
    assert code == 3
    assert seconds < 15
    assert said.splitlines()[-2:] == ["the work is done", "the hook was called"]


@pytest.mark.parametrize("tell", ["lambda text: print('told:', text, flush=True)", "lambda text: open('/no/such')"])
def test_what_was_cut_off_is_told_where_that_can_be(tell):
    left = "threading.Thread(target=time.sleep, args=(300,), name='sender').start()"
    code, said, seconds = run(left, tell=tell)
    assert code == 3
    assert seconds < 15
    assert f"{TOLD}the thread 'sender'\n" in said
    assert ("told: not waited for after 1 s: the thread 'sender'\n" in said) == ("print" in tell)


def test_a_function_of_atexit_that_does_not_end_is_given_up_and_none_is_called_twice():
    code, said, seconds = run("atexit.register(time.sleep, 300); atexit.register(print, 'later', flush=True)")
    assert code == 3
    assert seconds < 15
    assert f"{TOLD}functions of atexit\n" in said
    assert said.count("later") == 1


def test_what_python_cannot_interrupt_is_ended_by_the_keeper():
    """As a destructor of TensorFlow's that waits for its threads."""
    code, said, seconds = run("class Stuck:\n    def __del__(self): time.sleep(300)\nstuck = Stuck()")
    assert code == 3
    assert seconds < 15
    assert "the work of this process is done, and it did not end itself: it was killed\n" in said
    assert "the hook was called" in said


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
def test_an_error_is_said_and_becomes_a_code(monkeypatch, capsys, error, code, again):
    assert leaving.exit_code(raising(error)) == code
    assert capsys.readouterr().err == f"{error}\n"
    monkeypatch.setenv(RETRYABLE, "99")
    assert leaving.exit_code(raising(error)) == again
    assert leaving.exit_code(lambda: 7) == 7


# As __main__ does, with a training that ends by a signal.
_REPLICA = """
import os, runpy, signal, sys
from tfx_estimator.components.trainer import executor
executor.Executor.Do = lambda *told: os.kill(os.getpid(), signal.SIGTERM)
from tfx_estimator.pipeline.platforms.vertex import call
call.read_call = lambda folder: ({}, {}, {})
sys.argv[1:] = ["--call", sys.argv[1], "--roles", "chief"]
runpy.run_module("tfx_estimator.pipeline.platforms.vertex.replica", run_name="__main__")
"""


def test_a_replica_of_a_custom_job_says_what_signal_has_ended_it(tmp_path):
    done = run_python("-c", _REPLICA, str(tmp_path))
    assert (done.returncode, "ended by SIGTERM" in done.stderr) == (143, True), done.stderr
