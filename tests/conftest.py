"""Fixtures for all tests: real data, isolation from the user's state, and checks for leftover processes."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

# Before any import of TensorFlow: it chooses the stack's Keras.
import tfx_estimator  # noqa: F401
from tests import forked_tasks

# Without deadline, because other load on the machine slows tests.
hypothesis.settings.register_profile("project", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("project")

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tfds"
# Set to anything but 0, it also runs the tests marked `long`.
LONG = "TFX_ESTIMATOR_LONG"
# Inherited by every process of a test, to find those that outlive their parent.
RUN_MARK = "TFX_ESTIMATOR_TEST_RUN"
# Tests that start processes.
HEAVY_MARKS = ("e2e", "cluster", "faults", "equivalence")
# A test with none of these is a unit test: it takes no longer than most, and is of no other kind.
MARKS = ("unit", *HEAVY_MARKS, "golden", "long", "timeout")
# Helpers of multiprocessing, which run as long as the process that started them.
HARMLESS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
GRACE_SECONDS = 5.0
HARD_STOP_EXTRA_SECONDS = 60.0
# Process id, descriptor, and the kernel's name.
Socket = tuple[int, int, str]


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the real stderr for the hard stop below; disables garbage collection during imports."""
    gc.disable()
    config.stash[_STDERR] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


_STDERR = pytest.StashKey[object]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks unit tests; deselects `long` ones unless the environment selects them; orders those of a worker."""
    for item in items:
        if not any(map(item.get_closest_marker, MARKS)):
            item.add_marker(pytest.mark.unit)
    long = [item for item in items if item.get_closest_marker("long")]
    if long and os.environ.get(LONG, "") in ("", "0"):
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        from tests.queues import by_queue

        items[:] = by_queue(items)


def pytest_collection_finish() -> None:
    """Enables garbage collection, without the imported and collected objects."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns the scheduler for several processes (`-n 3`)."""
    from tests.queues import Scheduler

    return Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the whole run if a test hangs in C code.

    pytest-timeout's signal ends a hang in Python, and the run continues; it does not reach a thread that never returns
    to the interpreter (a collective, a gRPC wait). One minute later faulthandler, which needs no interpreter, prints
    all stacks and exits.
    """
    marker = item.get_closest_marker("timeout")
    seconds = (marker.args[0] if marker.args else marker.kwargs["timeout"]) if marker else item.config.getini("timeout")
    if seconds and float(seconds) > 0:
        faulthandler.dump_traceback_later(
            float(seconds) + HARD_STOP_EXTRA_SECONDS, exit=True, file=item.config.stash[_STDERR]
        )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def real_data_dir() -> str:
    """A TFDS data_dir with MNIST and CIFAR-10; skips the test without one."""
    folder = Path(os.environ.get("TFX_ESTIMATOR_REAL_DATA", REAL_DATA))
    if not folder.is_dir():
        pytest.skip(f"no prepared MNIST / CIFAR-10 at {folder}; set TFX_ESTIMATOR_REAL_DATA to a TFDS data_dir")
    return str(folder)


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, on `sys.path`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Calls the command line, which must end with `code`; returns what was printed since the last look."""

    def call(*words: str, code: int = 0) -> Any:
        from tfx_estimator.__main__ import main

        ended, printed = main([*words]), capsys.readouterr()
        assert ended == code, printed.err
        return printed

    return call


@pytest.fixture(scope="session")
def temporary_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Creates a folder for temporary files, and removes it after the session, with those of killed processes.

    Its path is short, because a socket's path is limited to 107 characters.
    """
    # Makes pytest choose its own folder before TMPDIR changes.
    tmp_path_factory.getbasetemp()
    folder = Path(tempfile.mkdtemp(prefix="tfx-"))
    # Like /tmp, because some tests start processes of other users.
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def isolation(tmp_path_factory: pytest.TempPathFactory, temporary_of_session: Path) -> Iterator[Path]:
    """Sets every home, cache, state and temporary folder to a fresh one, here and in child processes."""
    home = tmp_path_factory.mktemp("home")
    state = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local" / "share",
        "XDG_STATE_HOME": home / ".local" / "state",
        "TFDS_DATA_DIR": home / "tensorflow_datasets",
        "LOCAL_HOME": home / "tfx" / "local",  # the state of `tfx … --engine local`
        "KERAS_HOME": home / ".keras",
        "TFHUB_CACHE_DIR": home / "tfhub",
        "TMPDIR": temporary_of_session,
        # As the command line sets it: see its `_run`.
        "LANGUAGE": "C",
        RUN_MARK: uuid.uuid4().hex,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in state.items():
            patch.setenv(name, str(value))
        for name in ("TF_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS"):
            patch.delenv(name, raising=False)
        patch.setattr(tempfile, "tempdir", str(temporary_of_session))
        yield home


@pytest.fixture(scope="session", autouse=True)
def tasks_are_forked(isolation: Path) -> Iterator[None]:
    """Forks the training tasks of this process, except in tests with `fresh_tasks`."""
    with forked_tasks.forked_from_server():
        yield


@pytest.fixture
def fresh_tasks() -> Iterator[None]:
    """Starts each task in a fresh Python, as for users."""
    with forked_tasks.fresh():
        yield


class Clock:
    """A clock that only the test advances."""

    now = 1000.0


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Replaces `time.monotonic` by a clock that stands still."""
    fake = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: fake.now)
        yield fake


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    """Restores `sys.path` after each test, because new processes get its folders of user modules."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def own_precision() -> Iterator[None]:
    """Restores Keras's precision policy after each test: a declared precision sets it for the whole process."""
    yield
    if {"keras", "tf_keras"} & sys.modules.keys() and (tensorflow := sys.modules.get("tensorflow")):
        tensorflow.keras.mixed_precision.set_global_policy("float32")


@pytest.fixture(autouse=True)
def no_leftovers(request: pytest.FixtureRequest, isolation: Path) -> Iterator[None]:
    """Fails a test that leaves a process or a listening TCP port behind, and kills the processes."""
    heavy = any(request.node.get_closest_marker(mark) for mark in HEAVY_MARKS)
    processes, sockets = _running(heavy)
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        now, now_open = _running(heavy)
        left, open_ports = now - processes, _listening(now_open - sockets)
        if not (left or open_ports) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if not (left or open_ports):
        return
    lines = [f"process {process.pid}: {_command(process)}" for process in left]
    lines += [f"port {port} of process {pid}" for pid, port in open_ports]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    pytest.fail("the test left behind:\n  " + "\n  ".join(sorted(lines)), pytrace=False)


def _running(heavy: bool) -> tuple[set[psutil.Process], set[Socket]]:
    """Returns the running children, with orphans if `heavy`, and the open sockets of this process and its children."""
    me = os.getpid()
    children = set(_descendants(me))
    found = set(children)
    if heavy:
        mark = os.environ[RUN_MARK]
        for process in psutil.process_iter():
            try:
                if process.pid != me and process.environ().get(RUN_MARK) == mark:
                    found.add(process)
            except psutil.Error:
                continue
    return {process for process in found if not _harmless(process)}, _sockets(me, *(each.pid for each in children))


def _descendants(pid: int) -> Iterator[psutil.Process]:
    """Yields a process's descendants. This runs twice per test, and psutil's own search takes 2 ms: it scans /proc."""
    with contextlib.suppress(OSError):  # it may have ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        yield psutil.Process(child)
                    yield from _descendants(child)


def _harmless(process: psutil.Process) -> bool:
    try:
        if process.pid in forked_tasks.SERVERS or process.status() == psutil.STATUS_ZOMBIE:
            return True
    except psutil.NoSuchProcess:
        return True
    return any(name in _command(process) for name in HARMLESS)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return "(gone)"


def _sockets(*pids: int) -> set[Socket]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if (target := os.readlink(f"/proc/{pid}/fd/{fd}")).startswith("socket:"):
                        found.add((pid, int(fd), target))
    return found


def _listening(sockets: set[Socket]) -> set[tuple[int, int]]:
    """Returns process id and port of listening TCP sockets.

    Called for new sockets only: the kernel scans its whole table of connections, which takes 20 ms per test.
    """
    found = set()
    places = {(pid, fd) for pid, fd, _ in sockets}
    for pid in {pid for pid, _ in places}:
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except psutil.Error:
            continue
        listening = [each for each in connections if each.status == psutil.CONN_LISTEN and (pid, each.fd) in places]
        found |= {(pid, each.laddr.port) for each in listening}
    return found
