"""A run that ends in any way, with stand-ins for its work: no way is without a word, an exit code, or cleaning up."""

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

# The command line, with work of the test's; the user's code is a file of its own.
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
    # A folder that counts as the user's own, as the tests' own folders under the project do not need to.
    own = tmp_path / "own"

    def begin(*lines: str, group: bool = False, first: str = "") -> subprocess.Popen:
        body = "\n".join(f"    {line}" for line in lines)
        text = f"import os, signal, subprocess, sys, time\n\n\ndef work():\n{body}\n    return 0\n{first}\n"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path / "tmp")}
        # As pip makes one: neither a library's file nor this project's.
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
    ("line", "code", "told"),
    [
        ("os._exit(0)", 4, "ended, with exit code 0, in component Transform; your code was at work"),
        ("os.abort()", 4, "was killed by SIGABRT, in component Transform; your code was at work"),
        ("import ctypes; ctypes.string_at(0)", 4, "was killed by SIGSEGV, in component Transform; your code"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 6, "was killed by SIGKILL, in component Transform"),
        ("return 3", 3, ""),
    ],
)
def test_whatever_ends_the_run_is_told_with_the_line(start, tmp_path, line, code, told):
    run = start("daemon = subprocess.Popen(['sleep', '300'], start_new_session=True)", line)
    daemons = psutil.Process(run.pid).children(recursive=True)
    _, said = run.communicate(timeout=30)
    assert run.returncode == code, said
    assert told in said
    assert ("dmesg" in said) is (code == 6)
    assert (f'File "{tmp_path}/own/own.py", line 6, in work' in said) is (code == 4)
    assert "Traceback" not in said
    assert not list((tmp_path / "tmp").iterdir())
    assert not psutil.wait_procs(daemons, timeout=5)[1]


def test_what_a_library_ends_is_not_the_users_though_a_script_has_started_it(start, tmp_path):
    library = {"library.py": "import os\n\n\ndef work():\n    os._exit(3)\n"}
    folder = write_files(tmp_path / "own" / "site-packages", library)
    # A call in its place: the user's code is not on the stack.
    run = start("return 0", first=f"sys.path.insert(0, {str(folder)!r}); from library import work")
    _, said = run.communicate(timeout=30)
    assert run.returncode == 6, said
    assert "ended, with exit code 3, in component Transform" in said
    assert "your code" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "lines",
    [
        ("time.sleep(60)",),
        # Python's lock is held: no handler of Python's can run.
        ("sum(range(10**12))",),
        # It takes it for an error that can be borne.
        ("while True:", "    try: time.sleep(1)", "    except BaseException: pass"),
    ],
    ids=["Python", "C", "swallowed"],
)
def test_a_signal_ends_it_at_once_and_in_words(start, tmp_path, number, lines):
    run = start(*lines)
    time.sleep(0.2)
    begun = time.monotonic()
    run.send_signal(number)
    _, said = run.communicate(timeout=30)
    assert run.returncode == 128 + number
    assert time.monotonic() - begun < 6  # 2 on a machine that is not busy
    word = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert said.startswith(f"tfx-estimator: {word} in component Transform; the next run continues from there")
    assert len(said.splitlines()) == 1
    assert not list((tmp_path / "tmp").iterdir())


def test_a_closed_terminal_ends_it_unless_that_is_ignored(start):
    # A run inherits what these tests were started with, under nohup that it is ignored.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run = start("time.sleep(60)")
        run.send_signal(signal.SIGHUP)
        _, said = run.communicate(timeout=30)
        assert (run.returncode, said.startswith("tfx-estimator: ended by SIGHUP in component Transform")) == (129, True)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        run = start("time.sleep(0.7)")
    finally:
        signal.signal(signal.SIGHUP, before)
    run.send_signal(signal.SIGHUP)
    assert run.wait(30) == 0


@pytest.mark.parametrize("group", [False, True])
def test_a_stop_is_no_end(start, group):
    # Longer than the watcher waits at a time.
    run = start("time.sleep(3)", group=group)
    send = os.killpg if group else os.kill
    for _ in range(2):
        send(run.pid, signal.SIGSTOP)
        time.sleep(1.3)
        send(run.pid, signal.SIGCONT)
        time.sleep(0.1)
    _, told = run.communicate(timeout=30)
    assert (run.returncode, told) == (0, "")


# It asks for time, as a training does, and counts the signals that reach it.
PATIENT = (
    "from tfx_estimator.pipeline.base.ending import signals, shared_status",
    "heard = []",
    "def note(number, frame): heard.append(number); signals.note(number)",
    "signal.signal(signal.SIGINT, note); signal.signal(signal.SIGTERM, note)",
    "with shared_status.patient():",
    "    print('patient', flush=True)",
    "    while not heard: time.sleep(0.01)",
    "    time.sleep(2.5)",
    "    print(len(heard), flush=True)",
)


def test_what_asks_for_time_has_it_and_hears_a_signal_of_the_whole_group_once(start):
    run = start(*PATIENT, group=True)
    assert run.stdout.readline() == "patient\n"
    os.killpg(run.pid, signal.SIGINT)
    said, told = run.communicate(timeout=30)
    assert (run.returncode, said, told) == (0, "1\n", "")


def test_a_second_signal_ends_that_too(start):
    run = start(*PATIENT, "time.sleep(60)")
    assert run.stdout.readline() == "patient\n"
    run.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    begun = time.monotonic()
    run.send_signal(signal.SIGTERM)
    _, told = run.communicate(timeout=30)
    assert run.returncode == 143
    assert "ended by SIGTERM in component Transform" in told
    assert time.monotonic() - begun < 6


def test_the_watchers_death_is_the_runs_and_the_next_run_removes_its_files(start, tmp_path):
    first = start("time.sleep(60)")
    (work,) = psutil.Process(first.pid).children()
    first.kill()
    psutil.wait_procs([work], timeout=10)
    assert not work.is_running()
    (home,) = (tmp_path / "tmp").iterdir()
    (left,) = home.iterdir()
    # That of a run which lives stays.
    second = start("time.sleep(60)")
    assert not left.exists()
    (living,) = home.iterdir()
    third = start()
    assert third.wait(30) == 0
    assert [path.name for path in home.iterdir()] == [living.name]
    second.terminate()
    assert second.wait(30) == 143
    assert not list((tmp_path / "tmp").iterdir())
