"""Private networks, with real processes, of every kind of user that this machine lets us be."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.trainer.cluster import private_network
from components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork, enter

pytestmark = pytest.mark.cluster

PROJECT = str(Path(__file__).resolve().parents[4])
NOBODY = 65534
DUAL = socket.has_dualstack_ipv6()
INSIDE = ["127.0.0.1", "localhost", *(["::1"] if DUAL else [])]

# A task: its user need not be able to read the project.
ENTER = """
import ctypes, json, os, runpy, socket, sys
module, fds = sys.argv[1], json.loads(sys.argv[2])
runpy.run_path(module)["enter"](fds)
"""
DIE_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\n"
WAITER = ENTER + DIE_WITH_PARENT + "print('ready', flush=True); sys.stdin.read()"
SERVER = (
    DIE_WITH_PARENT
    + ENTER
    + """
dual = socket.has_dualstack_ipv6()
family, host = (socket.AF_INET6, "::") if dual else (socket.AF_INET, "0.0.0.0")
with socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        with server.accept()[0] as client:
            client.sendall(b"inside")
"""
)
CLIENT = (
    ENTER
    + """
said = {}
for host in json.loads(sys.argv[4]) if fds else ():
    with socket.create_connection((host, int(sys.argv[3])), 5) as server:
        said[host] = server.recv(6).decode()
print(json.dumps(said))
"""
)
# What this process may do with the files of a folder, and who it is.
FILES = (
    ENTER
    + """
def attempt(mode, path):
    try:
        with open(path, mode) as file:
            return file.read() if mode == "r" else file.write("more")
    except OSError as error:
        return type(error).__name__
folder = sys.argv[3]
rights = {f"{mode} {name}": attempt(mode, f"{folder}/{name}") for name in sorted(os.listdir(folder)) for mode in "ra"}
os.mkdir(f"{folder}/{sys.argv[4]}")
with open(f"{folder}/{sys.argv[4]}/made", "w"):
    pass
with open("/proc/self/status") as file:
    status = [line.split() for line in file if line.startswith(("Uid", "Gid", "Cap")) and "Bnd" not in line]
print(json.dumps([rights, status]))
"""
)
# The supervisor's part. It reads programs of tasks, runs them, and prints their first line.
SUPERVISOR = """
import json, os, subprocess, sys
folder = sys.argv[1]
sys.path.insert(0, folder)
from private_network import NoPrivateNetworkError, PrivateNetwork
def start(fds, program, arguments):
    command = [sys.executable, "-I", "-S", "-c", program, f"{folder}/private_network.py", json.dumps(fds), *arguments]
    return subprocess.Popen(command, pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def tell(value):
    print(json.dumps(value), flush=True)
def fds_open():
    return sorted(os.listdir("/proc/self/fd"))
before, tasks = fds_open(), []
try:
    with PrivateNetwork() as network:
        tell(network.fds)
        for line in iter(sys.stdin.readline, "end\\n"):
            where, program, *arguments = json.loads(line)
            if where == "kill":
                tasks[program].kill()
                tell(tasks[program].wait())
                continue
            tasks.append(start(network.fds if where == "in" else (), program, arguments))
            tell([len(tasks) - 1, tasks[-1].pid, tasks[-1].stdout.readline()])
        for task in tasks:
            task.kill()
            task.communicate()
    tell([network.fds, before, fds_open()])
    try:
        tell(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        tell("no child")
except NoPrivateNetworkError as error:
    tell(error.reason)
"""
# No new network namespace in this user namespace: its root may say so.
WITHOUT_PERMISSION = (
    """
import ctypes, os
own = {"uid": os.geteuid(), "gid": os.getegid()}
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for path, text in [("self/setgroups", "deny"), *((f"self/{kind}_map", f"{i} {i} 1") for kind, i in own.items()),
                   ("sys/user/max_net_namespaces", "0")]:
    with open(f"/proc/{path}", "w") as file:
        file.write(text)
"""
    + SUPERVISOR
)


@dataclasses.dataclass(frozen=True)
class User:
    """Who runs the programs.

    Args:
        python: An interpreter that this user may run.
        folder: Holds private_network.py; this user may write there.
        namespaces: Flags of the namespaces that this user should get.
        prefix: Precedes each program.
        popen: Arguments of subprocess.Popen.
    """

    python: str
    folder: Path
    namespaces: int
    prefix: str = ""
    popen: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def uid(self) -> int:
        return self.popen.get("user", os.geteuid())

    @property
    def gid(self) -> int:
        return self.popen.get("group", os.getegid())

    def start(self, program: str) -> subprocess.Popen:
        command = [self.python, "-I", "-S", "-c", self.prefix + program, str(self.folder)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **self.popen)


class Supervised:
    """The supervisor's process and the tasks that it is asked for."""

    def __init__(self, user: User, program: str = SUPERVISOR) -> None:
        self.process = user.start(program)
        self.fds = self.hear()

    def hear(self) -> Any:
        return json.loads(self.process.stdout.readline())

    def ask(self, *words: Any) -> Any:
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> tuple[Any, Any]:
        self.process.stdin.write("end\n")
        self.process.stdin.flush()
        return self.hear(), self.hear()


@contextlib.contextmanager
def supervised(user: User) -> Iterator[Supervised]:
    """A supervisor in its context."""
    made = Supervised(user)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


NEWUSER, NEWNET = 0x10000000, 0x40000000
# Dropped from the bounding set, then execve takes it from the permitted set.
WITHOUT_SYS_ADMIN = """
import ctypes, os, sys
if "again" not in sys.argv:
    assert ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0
    os.execv(sys.executable, [*sys.orig_argv, "again"])
"""


@pytest.fixture(scope="module", params=["this user", "plain user", "root without CAP_SYS_ADMIN"])
def user(request: pytest.FixtureRequest) -> Iterator[User]:
    """Users who should get a private network on this machine."""
    if request.param != "this user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(private_network.__file__, folder)
        (folder / "private_network.py").chmod(0o644)
        own = NEWNET if os.geteuid() == 0 else NEWNET | NEWUSER
        made = User(sys.executable, folder, own)
        if request.param == "root without CAP_SYS_ADMIN":
            made = dataclasses.replace(made, prefix=WITHOUT_SYS_ADMIN, namespaces=NEWNET | NEWUSER)
        elif request.param == "plain user":
            os.chown(folder, NOBODY, NOBODY)
            popen = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            made = User(_python_of(popen, folder), folder, NEWNET | NEWUSER, popen=popen)
        # By another way than the one under test.
        probe = made.start(f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({made.namespaces}) != 0)")
        probe.communicate()
        if probe.returncode:
            pytest.skip(f"this machine gives {request.param} no network namespace")
        yield made


def _python_of(popen: dict[str, Any], folder: Path) -> str:
    """An interpreter that another user may run: this one may lie in a home that is closed to others."""
    for python in (sys.executable, getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        check = f"import os, sys; sys.exit(sys.version_info < (3, 10) or not os.access({str(folder)!r}, os.W_OK))"
        with contextlib.suppress(PermissionError, FileNotFoundError):
            if subprocess.run([python, "-I", "-S", "-c", check], check=False, **popen).returncode == 0:
                return python
    pytest.skip("no interpreter of Python 3.10 that uid 65534 may run")


def _addresses() -> list[str]:
    families = [socket.AF_INET, *([socket.AF_INET6] if DUAL else [])]
    return sorted({each.address for nic in psutil.net_if_addrs().values() for each in nic if each.family in families})


def _reached(port: int) -> dict[str, str]:
    """What answers at a port, by address of this machine."""
    said = {}
    for address in _addresses():
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, port), 5) as server:
            said[address] = server.recv(7).decode()
    return said


@contextlib.contextmanager
def _listening_outside(port: int) -> Iterator[None]:
    """Answers "outside" at a port of this machine."""
    host, family = ("::", socket.AF_INET6) if DUAL else ("", socket.AF_INET)
    with socket.create_server((host, port), family=family, dualstack_ipv6=DUAL) as server:

        def answer() -> None:
            while True:
                client, _ = server.accept()
                with client:
                    if stop.is_set():
                        return
                    client.sendall(b"outside")

        stop = threading.Event()
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            socket.create_connection(("127.0.0.1", port), 5).close()
            thread.join()


def test_a_server_is_reached_from_inside_only(user):
    with supervised(user) as supervisor:
        assert len(supervisor.fds) == (2 if user.namespaces & NEWUSER else 1)
        # The network outlives a task that is killed.
        first, *_ = supervisor.ask("in", SERVER)
        assert supervisor.ask("kill", first) == -9
        port = int(supervisor.ask("in", SERVER)[2])

        assert "127.0.0.1" in _addresses()
        assert _reached(port) == {}
        with _listening_outside(port):
            assert _reached(port) == dict.fromkeys(_addresses(), "outside")
            said = supervisor.ask("in", CLIENT, str(port), json.dumps(INSIDE))[2]
        assert json.loads(said) == dict.fromkeys(INSIDE, "inside")


def test_files_are_whose_they_would_be_outside(user):
    def lay_out(name: str) -> Path:
        folder = user.folder / name
        folder.mkdir()
        owners = {"own": (user.uid, user.gid), **({"foreign": (1, 1)} if os.geteuid() == 0 else {})}
        for owner, (uid, gid) in owners.items():
            for mode in (0o400, 0o600, 0o644):
                path = folder / f"{owner}-{mode:o}"
                path.write_text("text")
                path.chmod(mode)
                os.chown(path, uid, gid)
        os.chown(folder, user.uid, user.gid)
        return folder

    inside, outside = lay_out("inside"), lay_out("outside")
    with supervised(user) as supervisor:
        rights, status = json.loads(supervisor.ask("in", FILES, str(inside), "new")[2])
        assert [rights, status] == json.loads(supervisor.ask("out", FILES, str(outside), "new")[2])
    assert rights["r own-600"] == "text"
    assert rights["a own-600"] == len("more")
    if user.uid:
        assert rights["a own-400"] == "PermissionError"
    else:
        assert rights["r foreign-400"] == "text"
    for path in (inside / "new", inside / "new" / "made"):
        assert (path.stat().st_uid, path.stat().st_gid) == (user.uid, user.gid)


def test_neither_process_nor_descriptor_is_left(user):
    with supervised(user) as supervisor:
        supervisor.ask("in", WAITER)
        (fds, before, after), children = supervisor.end()
        assert supervisor.process.wait(timeout=10) == 0
    assert fds == []
    assert after == before
    assert children == "no child"


def test_tasks_die_with_the_supervisor(user):
    with supervised(user) as supervisor:
        # One asks the kernel for it before it enters, one afterwards.
        pids = [supervisor.ask("in", program)[1] for program in (SERVER, WAITER)]
        tasks = [psutil.Process(pid) for pid in pids]
        supervisor.process.kill()
        # An init that reaps late leaves a zombie, which is as dead.
        deadline = time.monotonic() + 10
        while any(_lives(task) for task in tasks) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(_lives(task) for task in tasks)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_reason_is_told_where_it_is_not_permitted(user):
    probe = user.start("import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)")
    probe.communicate()
    if probe.returncode:
        pytest.skip("this machine gives no user namespace, in which namespaces could be forbidden")
    process = user.start(WITHOUT_PERMISSION)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    reason = json.loads(said)
    assert "no more namespaces are allowed" in reason
    assert "/proc/sys/user/max_net_namespaces is 0" in reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 60", "longer than 0.3 s"),
        ("exit 3", "ended with 3"),
        ("kill -SYS $$", "ended with -31"),
        ("echo not today >&2; exit 1", "not today"),
        (None, "no process could be started"),
    ],
)
def test_the_reason_is_told_where_the_interpreter_does_not_answer(tmp_path, monkeypatch, script, reason):
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        if "sleep" in script:
            monkeypatch.setattr(private_network, "_DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr(sys, "executable", str(python))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(NoPrivateNetworkError, match=reason) as raised, PrivateNetwork():
        pass
    assert str(raised.value) == raised.value.reason
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_reason_is_told_where_there_are_no_namespaces(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NoPrivateNetworkError, match="darwin has no network namespaces"), PrivateNetwork():
        pass


def test_a_process_with_threads_may_not_enter():
    # Half of it would stay outside.
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with open("/proc/self/ns/net", "rb") as own, pytest.raises(RuntimeError, match="before the process starts"):
            enter((own.fileno(),))
        enter(())
    finally:
        stop.set()
        thread.join()


TENSORFLOW = (
    f"import json, os, sys; sys.path[0] = {PROJECT!r}"
    + """
# As the trainer's tasks do.
from components.trainer import task
from components.trainer.cluster.private_network import enter
enter(json.loads(sys.argv[2]))
import tensorflow as tf
address = f"localhost:{sys.argv[3]}"
server = tf.distribute.Server({"worker": [address]}, job_name="worker", task_index=0)
print("listening", flush=True)
sys.stdin.read()
os._exit(0)
"""
)
# HTTP/2's connection preface and an empty SETTINGS frame. A gRPC server answers with its own: a frame of type 4.
GRPC = (
    ENTER
    + """
with socket.create_connection(("localhost", int(sys.argv[3])), 10) as server:
    server.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    print(server.recv(9)[3])
"""
)


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    """A private network of this very process, threads and all."""
    flags = NEWNET if os.geteuid() == 0 else NEWNET | NEWUSER
    probe = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({flags}) != 0)"
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        pytest.skip("this machine gives this user no network namespace")
    with PrivateNetwork() as made:
        yield made


def test_a_tensorflow_server_is_reached_from_inside_only(network):
    with socket.create_server(("", 0)) as any_port:
        port = any_port.getsockname()[1]

    start = functools.partial(_start, network.fds, port)
    with start(TENSORFLOW) as server:
        try:
            assert server.stdout.readline() == "listening\n"
            assert _reached(port) == {}
            with start(GRPC) as client:
                assert client.stdout.read() == "4\n"
            with _listening_outside(port):
                assert _reached(port) == dict.fromkeys(_addresses(), "outside")
        finally:
            server.kill()


def _start(fds: Sequence[int], port: int, program: str) -> subprocess.Popen:
    # With site-packages, as the trainer's tasks: no thread may come from there.
    command = [sys.executable, "-c", program, private_network.__file__, json.dumps(fds), str(port)]
    return subprocess.Popen(command, pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
