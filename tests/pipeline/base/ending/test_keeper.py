"""Nothing outlives a kept process; tested with real processes that try to escape."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.root import start_python
from tests.waiting import wait_until

pytestmark = [pytest.mark.unit, pytest.mark.timeout(60)]

# A textbook daemon with its own environment; then the end that the test specifies.
KEPT = """
import os, signal, subprocess, sys, time
from tfx_estimator.pipeline.base.ending.keeper import keep

keep(os.getppid())
if not os.fork():
    os.setsid()
    if not os.fork():
        with open(sys.argv[1] + ".draft", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".draft", sys.argv[1])
        os.execve("/bin/sleep", ["sleep", "300"], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
# Its parent, which the test may kill as well.
PARENT = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', *sys.argv[1:]]).returncode)"


def daemon(run: subprocess.Popen, file: Path) -> psutil.Process:
    def is_there() -> bool:
        assert run.poll() is None, f"what starts the daemon has ended with {run.returncode}"
        return file.exists()

    wait_until(is_there, "the daemon", 30)
    return psutil.Process(int(file.read_text()))


def is_gone(process: psutil.Process) -> bool:
    try:
        process.wait(10)
    except psutil.TimeoutExpired:
        process.kill()
        return False
    return True


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(3)", 3),
        ("os._exit(0)", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_a_daemon_ends_with_its_starter_and_the_exit_code_is_passed_on(tmp_path, end, code):
    # Not earlier, since the daemon may be killed at once.
    file = tmp_path / "pid"
    end = f"os.rename(sys.argv[1], sys.argv[1] + '.seen'); {end}"
    run = start_python("-c", PARENT, KEPT + end, str(file))
    assert run.wait(30) == (code if code >= 0 else 256 + code)
    (seen,) = tmp_path.iterdir()
    assert not psutil.pid_exists(int(seen.read_text()))


@pytest.mark.parametrize("victim", ["keeper", "parent"])
def test_a_daemon_ends_when_its_keeper_is_terminated_or_loses_its_parent(tmp_path, victim):
    file = tmp_path / "pid"
    run = start_python("-c", PARENT, KEPT + "time.sleep(300)", str(file))
    found = daemon(run, file)
    (keeper,) = psutil.Process(run.pid).children()
    assert found.ppid() == keeper.pid
    if victim == "keeper":
        keeper.terminate()
    else:
        run.kill()
    run.wait(30)
    assert is_gone(found)
    assert is_gone(keeper)
