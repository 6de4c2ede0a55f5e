"""Kinds of users who run a supervisor and its tasks in a private network, and the programs that they run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
replies = {}
for host in json.loads(sys.argv[4]) if fds else ():
    with socket.create_connection((host, int(sys.argv[3])), 5) as server:
        replies[host] = server.recv(6).decode()
print(json.dumps(replies))
"""
)
# Prints this process's rights on the files of a folder, and its ids.
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
# The supervisor: reads the tasks' programs, runs them, and prints their first lines.
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
    tell(str(error))
"""
# Docker's default seccomp rules for unshare and setns without the capability.
FILTERED = (
    """
import ctypes, struct
LOAD, EQUAL, ANSWER, EPERM, ALLOW = 0x20, 0x15, 0x06, 0x00050001, 0x7fff0000
lines = [(LOAD, 0, 0, 0), (EQUAL, 1, 0, 272), (EQUAL, 0, 1, 308), (ANSWER, 0, 0, EPERM), (ANSWER, 0, 0, ALLOW)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(program)))
# No new privileges; then the filter.
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
assert ctypes.CDLL(None).prctl(22, 2, head, 0, 0) == 0
"""
    + SUPERVISOR
)


@dataclasses.dataclass(frozen=True)
class User:
    """A kind of user who runs the programs.

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
    """The supervisor's process and its tasks."""

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
    """Starts a supervisor, and ends it with the context."""
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
