"""Processes that end silently or hang: their stack dump names the user's line."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.root import run_python, start_python
from tests.waiting import wait_until
from tfx_estimator.pipeline.user_source.faults import read_stack_now, read_users_frames

pytestmark = [pytest.mark.unit, pytest.mark.timeout(60)]

START = """
import sys, threading, time
from tfx_estimator.pipeline.user_source import faults
faults.note_ends(sys.argv[1] + "/ends")
faults.note_stacks(sys.argv[1] + "/stacks")
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
sys.path.insert(0, sys.argv[1])
import own
own.work()
"""


def begin(folder: Path, line: str) -> subprocess.Popen:
    (folder / "own.py").write_text(f"import os\n\n\ndef work():\n    {line}\n")
    return start_python("-c", START, str(folder))


@pytest.mark.parametrize(
    ("line", "code"),
    [("os._exit(0)", 0), ("os.abort()", -signal.SIGABRT), ("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("pass", 0)],
)
def test_a_crash_is_reported_with_the_line(tmp_path, line, code):
    assert begin(tmp_path, line).wait(30) == code
    frames = [f'  File "{tmp_path}/own.py", line 5, in work'] if line in ("os._exit(0)", "os.abort()") else []
    assert read_users_frames(str(tmp_path / "ends")) == frames
    assert not read_users_frames(str(tmp_path / "ends"), without=str(tmp_path / "own.py"))
    assert not read_users_frames(str(tmp_path / "absent"))


def test_the_end_of_a_finished_process_is_no_fault_of_the_user(tmp_path):
    done = START.replace("faults.note_ends", "done = faults.note_ends").replace("own.work()", "done(); own.work()")
    (tmp_path / "own.py").write_text("import os\n\n\ndef work():\n    os._exit(0)\n")
    assert run_python("-c", done, str(tmp_path)).returncode == 0
    assert (tmp_path / "ends").read_text() == ""


# The second holds Python's lock.
@pytest.mark.parametrize("line", ["while True: pass", "sum(range(10**12))"])
def test_a_hang_is_reported_with_the_line(tmp_path, line):
    process = begin(tmp_path, line)

    def read() -> list[str]:
        assert process.poll() is None, f"the process has ended with {process.returncode}"
        return read_stack_now(str(tmp_path / "stacks"))

    try:
        found = wait_until(read, "the user's frames", 30, every=0.1)
    finally:
        process.kill()
        process.wait()
    assert found == [f'  File "{tmp_path}/own.py", line 5, in work']
