"""Fixtures that all tests share: real data, isolation from the user's own state, and nothing left running."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

# Before any test's TensorFlow: it chooses the Keras of the stack.
import tfx_estimator  # noqa: F401
from tests import forked_tasks

# Other work on the machine is no fault of what is tested.
hypothesis.settings.register_profile("project", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("project")

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tfds"
# Set, and not to 0, to run the tests marked `long` as well.
LONG = "TFX_ESTIMATOR_LONG"
# Inherited by every process that a test starts: finds those that outlived their parent.
RUN_MARK = "TFX_ESTIMATOR_TEST_RUN"
# Tests that start processes of their own.
HEAVY_MARKS = ("e2e", "cluster", "faults", "equivalence")
# Python's own helper of multiprocessing lives as long as the process that started it.
HARMLESS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
GRACE_SECONDS = 5.0
HARD_STOP_EXTRA_SECONDS = 60.0
# Process id, descriptor, and what the kernel calls it.
Socket = tuple[int, int, str]


def pytest_configure(config: pytest.Config) -> None:
    """Keeps a way to the real stderr for the hard stop below; no garbage is looked for until all is imported."""
    gc.disable()
    config.stash[_STDERR] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


_STDERR = pytest.StashKey[object]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that take many minutes, unless the environment asks for them; skips what is not there."""
    long = [item for item in items if item.get_closest_marker("long")]
    if long and os.environ.get(LONG, "") in ("", "0"):
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        from tests.queues import in_order

        items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """Looks for garbage from here on; none is in what was imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Says which tests may run beside each other, where there are several processes (`-n 3`)."""
    from tests.queues import Scheduler

    return Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the whole run where a test hangs in C code.

    pytest-timeout's signal ends a hang in Python, and the run goes on; it does not reach a thread that never comes
    back to the interpreter (a collective, a gRPC wait). One minute later faulthandler, which needs no interpreter,
    prints all stacks and exits.
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
    """A TFDS data_dir with the whole MNIST and CIFAR-10, where this machine has one."""
    folder = Path(os.environ.get("TFX_ESTIMATOR_REAL_DATA", REAL_DATA))
    if not folder.is_dir():
        pytest.skip(f"no prepared MNIST / CIFAR-10 at {folder}; set TFX_ESTIMATOR_REAL_DATA to a TFDS data_dir")
    return str(folder)


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, whose modules are found."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def temporary_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes the place for temporary files, which goes with the session: what tests kill leaves some behind.

    Its path is short: that of a socket may have 107 characters.
    """
    # pytest keeps its own, with what the last tests left there, where they were.
    tmp_path_factory.getbasetemp()
    folder = Path(tempfile.mkdtemp(prefix="tfx-"))
    # As /tmp: some tests start processes of other users.
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def isolation(tmp_path_factory: pytest.TempPathFactory, temporary_of_session: Path) -> Iterator[Path]:
    """Points every home, cache, state and temporary folder at a fresh one, here and in processes that tests start."""
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
    """Forks each training task that a test starts in this process, but where it asks for `fresh_tasks`."""
    with forked_tasks.forked_apart():
        yield


@pytest.fixture
def fresh_tasks() -> Iterator[None]:
    """Has each task start as it does for users."""
    with forked_tasks.fresh():
        yield


class Clock:
    """Stands still until a test moves it; what a test is given as `clock`."""

    now = 1000.0


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Puts a clock that stands still in the place of `time.monotonic`."""
    made = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: made.now)
        yield made


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    """Takes out of `sys.path` what a test put there: folders of a user's modules are handed on to every new process."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def no_leftovers(request: pytest.FixtureRequest, isolation: Path) -> Iterator[None]:
    """Fails a test that leaves a process or a listening TCP port behind, and ends what it left."""
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
    told = [f"process {process.pid}: {_command(process)}" for process in left]
    told += [f"port {port} of process {pid}" for pid, port in open_ports]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    pytest.fail("the test left behind:\n  " + "\n  ".join(sorted(told)), pytrace=False)


def _running(heavy: bool) -> tuple[set[psutil.Process], set[Socket]]:
    """All living children, for tests that start processes those too whose parent has died; and the open sockets.

    These are of this process and its children.
    """
    me = psutil.Process()
    # psutil reads what the kernel says of every process there is, and this runs twice a test.
    has_children = any(map(Path.read_text, Path("/proc/self/task").glob("*/children")))
    children = me.children(recursive=True) if has_children else []
    found = set(children)
    if heavy:
        mark = os.environ[RUN_MARK]
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(RUN_MARK) == mark:
                    found.add(process)
            except psutil.Error:
                continue
    return {process for process in found if not _harmless(process)}, _sockets(me, *children)


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


def _sockets(*processes: psutil.Process) -> set[Socket]:
    found = set()
    for pid in (process.pid for process in processes):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if (target := os.readlink(f"/proc/{pid}/fd/{fd}")).startswith("socket:"):
                        found.add((pid, int(fd), target))
    return found


def _listening(sockets: set[Socket]) -> set[tuple[int, int]]:
    """Process id and port of those on which somebody listens by TCP.

    Asked for new sockets alone: the kernel looks through its whole table of connections, for 20 ms a test.
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
