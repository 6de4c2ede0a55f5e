"""Private networks, with real processes, for every kind of user that this machine permits."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.components.trainer.cluster.private_users import CLIENT, FILES, FILTERED, NEWUSER, SERVER, WAITER, supervised
from tests.waiting import wait_until
from tfx_estimator.components.trainer.cluster import private_network
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork

pytestmark = pytest.mark.cluster

DUAL = socket.has_dualstack_ipv6()
INSIDE = ["127.0.0.1", "localhost", *(["::1"] if DUAL else [])]


def _addresses() -> list[str]:
    families = [socket.AF_INET, *([socket.AF_INET6] if DUAL else [])]
    return sorted({each.address for nic in psutil.net_if_addrs().values() for each in nic if each.family in families})


def _reached(port: int) -> dict[str, str]:
    """Returns the replies at a port, by address of this machine."""
    answers = {}
    for address in _addresses():
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, port), 5) as server:
            answers[address] = server.recv(7).decode()
    return answers


@contextlib.contextmanager
def _listening_outside(port: int) -> Iterator[None]:
    """Replies "outside" at a port of this machine."""
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
        # The network outlives a killed task.
        first, *_ = supervisor.ask("in", SERVER)
        assert supervisor.ask("kill", first) == -9
        port = int(supervisor.ask("in", SERVER)[2])

        assert "127.0.0.1" in _addresses()
        assert _reached(port) == {}
        with _listening_outside(port):
            assert _reached(port) == dict.fromkeys(_addresses(), "outside")
            output = supervisor.ask("in", CLIENT, str(port), json.dumps(INSIDE))[2]
        assert json.loads(output) == dict.fromkeys(INSIDE, "inside")


def test_file_rights_and_owners_are_as_outside(user):
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
        # One sets PR_SET_PDEATHSIG before it enters, one afterwards.
        pids = [supervisor.ask("in", program)[1] for program in (SERVER, WAITER)]
        tasks = [psutil.Process(pid) for pid in pids]
        supervisor.process.kill()
        # An init that reaps late leaves a zombie, which counts as dead.
        wait_until(lambda: not any(_lives(task) for task in tasks), lambda: f"the end of all of {tasks}", 10)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_reason_is_reported_if_a_containers_filter_forbids_it(user):
    process = user.start(FILTERED)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "may not make a network namespace" in json.loads(output)
    assert "Operation not permitted" in json.loads(output)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 60", "timed out after 0.3 s"),
        ("kill -SYS $$", "ended with -31"),
        ("echo not today >&2; exit 1", "not today"),
        (None, "No such file"),
    ],
)
def test_the_reason_is_reported_if_the_interpreter_does_not_respond(tmp_path, monkeypatch, script, reason):
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        if "sleep" in script:
            monkeypatch.setattr(private_network, "_DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr(sys, "executable", str(python))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(NoPrivateNetworkError, match=reason), PrivateNetwork():
        pass
    assert set(os.listdir("/proc/self/fd")) == before
