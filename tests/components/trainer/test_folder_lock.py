"""Two local runs of one pipeline do not train in the same folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.refusals import refused
from tests.root import start_python
from tfx_estimator.components.trainer.training_claim import locked, only_job
from tfx_estimator.pipeline.base.errors import RETRYABLE, TrainingError

# Holds the folder in a process that starts another one, which outlives it.
HOLDER = """
import subprocess, sys
from tfx_estimator.components.trainer.training_claim import only_job

with only_job(sys.argv[1], False):
    print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid, flush=True)
    sys.stdin.read()
"""


def test_the_second_run_reports_the_holder_of_the_folder_until_that_is_killed(tmp_path):
    folder = str(tmp_path / "training" / "abc")
    with start_python("-c", HOLDER, folder) as holder:
        left = int(holder.stdout.readline())
        what = f"training/abc: process {holder.pid} on {socket.gethostname()}, since 20"
        with refused(TrainingError, "another run uses ", what, todo=f"kill {holder.pid}"), only_job(folder, False):
            pass
        # Another training is not disturbed.
        with only_job(f"{folder}d", False):
            pass
        holder.kill()
    try:
        with only_job(folder, False):
            assert json.loads((tmp_path / "training" / "abc.lock").read_text())["pid"] == os.getpid()
    finally:
        os.kill(left, signal.SIGKILL)
    assert list((tmp_path / "training").iterdir()) == []


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE, errno.EACCES])
def test_a_lock_file_that_cannot_be_removed_does_not_undo_the_work(tmp_path, monkeypatch, code):
    def remove(path: str) -> None:
        raise OSError(code, os.strerror(code))

    folder = str(tmp_path / "training" / "abc")
    with monkeypatch.context() as patch:
        patch.setattr(os, "remove", remove)
        with locked(folder):
            pass
    assert (tmp_path / "training" / "abc.lock").exists()
    with locked(folder):
        pass


@contextlib.contextmanager
def _held_elsewhere(path: Path):
    """Locks a file like a process of another machine."""
    path.parent.mkdir()
    path.write_text(json.dumps({"host": "node-7", "space": "a", "pid": 17, "since": 1.7e9}))
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def test_a_process_of_another_machine_is_not_suggested_for_killing(tmp_path, monkeypatch):
    monkeypatch.delenv(RETRYABLE, raising=False)
    path = tmp_path / "training" / "abc.lock"
    todo = f"on NFS 3 the lock of a lost machine stays: then remove {path}"
    theirs = refused(TrainingError, "process 17 on node-7, since 20", todo=todo)
    with _held_elsewhere(path), theirs as raised, locked(str(path)[: -len(".lock")]):
        raise AssertionError
    assert "kill" not in raised.value.todo
    assert raised.value.retryable


def test_in_a_cluster_the_chief_holds_it(tmp_path, monkeypatch):
    folder = str(tmp_path / "training" / "abc")
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    with only_job(folder, False):
        for kind, holds in (("worker", False), ("chief", True)):
            task = {"type": kind, "index": 0}
            monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
            with pytest.raises(TrainingError) if holds else contextlib.nullcontext(), only_job(folder, False):
                pass
