"""The ends of a run, with stand-ins for its work: each has a message and an exit code, and removes its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.folders import write_files
from tests.root import ROOT

pytestmark = [pytest.mark.unit, pytest.mark.timeout(60)]

# The command line with the test's work in place of a run; the user's code is in its own file.
RUN = """
import sys
from pathlib import Path
from tfx_estimator import __main__ as command_line
from tfx_estimator.pipeline.commands import run
from tfx_estimator.pipeline.base.ending import shared_status

def work(args):
    import os, signal, subprocess, sys, tempfile, time
    sys.path.insert(0, sys.argv[-1])
    import own
    tempfile.mkdtemp()
    shared_status.at("in component Transform")
    print("ready", flush=True)
    return own.work()

run.run = work
sys.exit(command_line.main())
"""


@pytest.fixture
def start(tmp_path: Path):
    """Starts a run whose work is the given lines of Python; `tmp` is its folder for temporary files."""
    runs: list[subprocess.Popen] = []
    (tmp_path / "tmp").mkdir()
    # A folder that counts as the user's own; test folders under the project may not.
    own = tmp_path / "own"

    def begin(*lines: str, group: bool = False, first: str = "") -> subprocess.Popen:
        body = "\n".join(f"    {line}" for line in lines)
        text = f"import os, signal, subprocess, sys, time\n\n\ndef work():\n{body}\n    return 0\n{first}\n"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path / "tmp")}
        # Like pip's console script: neither a library's file nor this project's.
        write_files(tmp_path, {"own/own.py": text, "bin/tfx-estimator": RUN})
        command = [sys.executable, str(tmp_path / "bin" / "tfx-estimator"), "run", "digits", "--workdir", str(own)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        runs.append(subprocess.Popen(command, env=environment, start_new_session=group, **pipes))
        assert runs[-1].stdout.readline() == "ready\n"
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()
        run.communicate()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("os._exit(0)", 4, "ended, with exit code 0, in component Transform; your code was running"),
        ("os.abort()", 4, "was killed by SIGABRT, in component Transform; your code was running"),
        ("import ctypes; ctypes.string_at(0)", 4, "was killed by SIGSEGV, in component Transform; your code"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 6, "was killed by SIGKILL, in component Transform"),
        ("return 3", 3, ""),
    ],
)
def test_the_cause_of_a_runs_end_is_reported_with_the_users_line(start, tmp_path, line, code, message):
    run = start("daemon = subprocess.Popen(['sleep', '300'], start_new_session=True)", line)
    daemons = psutil.Process(run.pid).children(recursive=True)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == code, stderr
    assert message in stderr
    assert ("dmesg" in stderr) is (code == 6)
    assert (f'File "{tmp_path}/own/own.py", line 6, in work' in stderr) is (code == 4)
    assert "Traceback" not in stderr
    assert not list((tmp_path / "tmp").iterdir())
    assert not psutil.wait_procs(daemons, timeout=5)[1]


def test_an_exit_in_a_library_is_not_blamed_on_the_users_code(start, tmp_path):
    library = {"library.py": "import os\n\n\ndef work():\n    os._exit(3)\n"}
    folder = write_files(tmp_path / "own" / "site-packages", library)
    # The import replaces work(): the user's code is not on the stack.
    run = start("return 0", first=f"sys.path.insert(0, {str(folder)!r}); from library import work")
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 6, stderr
    assert "ended, with exit code 3, in component Transform" in stderr
    assert "your code" not in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "lines",
    [
        ("time.sleep(60)",),
        # The GIL is held: no Python signal handler can run.
        ("sum(range(10**12))",),
        # The user's code swallows the exception.
        ("while True:", "    try: time.sleep(1)", "    except BaseException: pass"),
    ],
    ids=["Python", "C", "swallowed"],
)
def test_a_signal_ends_a_run_at_once_with_a_message(start, tmp_path, number, lines):
    run = start(*lines)
    time.sleep(0.2)
    begun = time.monotonic()
    run.send_signal(number)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 128 + number
    assert time.monotonic() - begun < 6  # 2 on an idle machine
    reason = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert stderr.startswith(f"tfx-estimator: {reason} in component Transform; the next run continues from there")
    assert len(stderr.splitlines()) == 1
    assert not list((tmp_path / "tmp").iterdir())


def test_a_closed_terminal_ends_a_run_unless_sighup_is_ignored(start):
    # A run inherits the tests' handler; under nohup the signal is ignored.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run = start("time.sleep(60)")
        run.send_signal(signal.SIGHUP)
        _, err = run.communicate(timeout=30)
        assert (run.returncode, err.startswith("tfx-estimator: ended by SIGHUP in component Transform")) == (129, True)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        run = start("time.sleep(0.7)")
    finally:
        signal.signal(signal.SIGHUP, before)
    run.send_signal(signal.SIGHUP)
    assert run.wait(30) == 0


@pytest.mark.parametrize("group", [False, True])
def test_a_stopped_run_continues(start, group):
    # Longer than one wait of the watcher.
    run = start("time.sleep(3)", group=group)
    send = os.killpg if group else os.kill
    for _ in range(2):
        send(run.pid, signal.SIGSTOP)
        time.sleep(1.3)
        send(run.pid, signal.SIGCONT)
        time.sleep(0.1)
    _, stderr = run.communicate(timeout=30)
    assert (run.returncode, stderr) == (0, "")


# Requests a grace period, like a training, and counts the signals it receives.
PATIENT = (
    "from tfx_estimator.pipeline.base.ending import signals, shared_status",
    "received = []",
    "def note(number, frame): received.append(number); signals.note(number)",
    "signal.signal(signal.SIGINT, note); signal.signal(signal.SIGTERM, note)",
    "with shared_status.patient():",
    "    print('patient', flush=True)",
    "    while not received: time.sleep(0.01)",
    "    time.sleep(2.5)",
    "    print(len(received), flush=True)",
)


def test_a_grace_period_is_kept_and_a_signal_to_the_group_arrives_once(start):
    run = start(*PATIENT, group=True)
    assert run.stdout.readline() == "patient\n"
    os.killpg(run.pid, signal.SIGINT)
    stdout, stderr = run.communicate(timeout=30)
    assert (run.returncode, stdout, stderr) == (0, "1\n", "")


def test_a_second_signal_ends_the_grace_period(start):
    run = start(*PATIENT, "time.sleep(60)")
    assert run.stdout.readline() == "patient\n"
    run.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    begun = time.monotonic()
    run.send_signal(signal.SIGTERM)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 143
    assert "ended by SIGTERM in component Transform" in stderr
    assert time.monotonic() - begun < 6


def test_a_run_dies_with_its_watcher_and_the_next_run_removes_its_files(start, tmp_path):
    first = start("time.sleep(60)")
    (work,) = psutil.Process(first.pid).children()
    first.kill()
    psutil.wait_procs([work], timeout=10)
    assert not work.is_running()
    (home,) = (tmp_path / "tmp").iterdir()
    (left,) = home.iterdir()
    # The folder of a live run stays.
    second = start("time.sleep(60)")
    assert not left.exists()
    (living,) = home.iterdir()
    third = start()
    assert third.wait(30) == 0
    assert [path.name for path in home.iterdir()] == [living.name]
    second.terminate()
    assert second.wait(30) == 143
    assert not list((tmp_path / "tmp").iterdir())
