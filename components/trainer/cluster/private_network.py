"""A private network for the tasks of one cluster on this machine.

TensorFlow's servers listen on every address of a machine, without authentication, whatever address they are given. In a
Linux network namespace with only the loopback interface, only processes in the namespace can connect.

This file uses only the standard library: it also runs as a script, which makes the namespaces, and a task imports it
before anything that starts threads.

Source: network_namespaces(7), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence

# linux/sched.h, linux/sockios.h, linux/if.h, linux/capability.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_CAPABILITY_VERSION_3 = 0x20080522
_DEADLINE_SECONDS = 10.0


class NoPrivateNetworkError(Exception):
    """This process cannot have a private network. The message is a clause that can follow "because"."""


class PrivateNetwork:
    """A network namespace with a loopback interface; it lives while the context lasts, or a task is in it.

    Users other than root, and a root without CAP_SYS_ADMIN, own it through a user namespace. That maps all ids to
    themselves, so that files keep their owners.

        with PrivateNetwork() as network:
            subprocess.Popen(command, pass_fds=network.fds)  # command must call enter(fds) first

    Attributes:
        fds: File descriptors of the namespaces, in the order of entry; empty outside the context.
    """

    def __init__(self) -> None:
        self.fds: tuple[int, ...] = ()

    def __enter__(self) -> PrivateNetwork:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # In another process: one with threads cannot change its namespaces.
            command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(theirs.fileno())]
            try:
                done = subprocess.run(
                    command,
                    check=False,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_DEADLINE_SECONDS,
                    pass_fds=(theirs.fileno(),),
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NoPrivateNetworkError(f"the process that makes a network namespace failed: {error}") from error
            if done.returncode:
                reason = done.stderr.splitlines()[-1:] or [f"the process that makes it ended with {done.returncode}"]
                raise NoPrivateNetworkError(reason[0])
            theirs.close()
            self.fds = tuple(socket.recv_fds(ours, 1, 2, socket.MSG_CMSG_CLOEXEC)[1])
        return self

    def __exit__(self, *error: object) -> None:
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)


def enter(fds: Sequence[int]) -> None:
    """Moves this process, which must have no threads yet, into a private network, and closes the descriptors.

    The user, the capabilities and a parent-death signal stay unchanged.
    """
    if not fds:
        return
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    capabilities = ctypes.create_string_buffer(24)
    _call("capget", header, capabilities)
    for fd in fds:
        _call("setns", fd, 0)
        os.close(fd)
    # Restores the capabilities: in a user namespace a process has all of them, and could write the user's read-only
    # files.
    _call("capset", header, capabilities)


def _make(channel: int) -> None:
    """Makes the namespaces and sends their descriptors."""
    try:
        try:
            _unshare(_CLONE_NEWNET)
            fds = [os.open("/proc/self/ns/net", os.O_RDONLY)]
        except PermissionError:
            fds = _make_with_user_namespace()
        with socket.socket(fileno=channel) as parent:
            socket.send_fds(parent, [b"."], fds)
        # Tests entering, which the tasks must do.
        enter(fds)
    except OSError as error:
        # unshare(2) reports a reached limit as ENOSPC.
        what = "no more namespaces are allowed" if error.errno == errno.ENOSPC else error.strerror or error
        sys.exit(f"this process may not make a network namespace: {what}")


def _make_with_user_namespace() -> list[int]:
    """Makes the namespaces in a child: a process cannot map all ids from within its own user namespace."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        try:
            ours.close()
            _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
            theirs.send(b"\0")
            theirs.recv(1)  # ends when the parent closes its end, or dies
        except OSError as error:
            theirs.send(bytes([error.errno or 0, *str(error.strerror).encode()]))
        finally:
            os._exit(0)
    theirs.close()
    try:
        with ours:
            answer = ours.recv(1024)
            if answer != b"\0":
                raise OSError(answer[0] if answer else 0, answer[1:].decode() or "the child died")
            for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
                _map_ids(child, kind, own)
            return [os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
    finally:
        os.waitpid(child, 0)


def _map_ids(pid: int, kind: str, own: int) -> None:
    """Maps all ids to themselves if permitted, else only `own`."""
    path = f"/proc/{pid}/{kind}_map"
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        ranges = [line.split() for line in file]
    try:
        _write(path, "".join(f"{first} {first} {count}\n" for first, _, count in ranges))
    except PermissionError as error:
        if os.geteuid() == 0:  # it would lose its access to other users' files
            raise OSError(error.errno, f"root has no capability to map the {kind}s of others") from error
        if kind == "gid":
            _write(f"/proc/{pid}/setgroups", "deny")
        _write(path, f"{own} {own} 1\n")


def _unshare(flags: int) -> None:
    _call("unshare", flags)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _call(name: str, *arguments: object) -> None:
    """Calls a function of the C library that returns 0 on success."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    _make(int(sys.argv[1]))
