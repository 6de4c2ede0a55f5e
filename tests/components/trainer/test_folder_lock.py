"""Two runs of one pipeline on this machine do not train in one folder."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from tfx_estimator.components.pusher import lock
from tfx_estimator.components.trainer.folder_lock import locked
from tfx_estimator.components.trainer.training_claim import only_job
from tfx_estimator.pipeline.errors import TrainingError

pytestmark = pytest.mark.unit

# Has the folder, as a process that starts another one, which outlives it.
HOLDER = """
import subprocess, sys
from tfx_estimator.components.trainer.training_claim import only_job

with only_job(sys.argv[1], False):
    print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid, flush=True)
    sys.stdin.read()
"""


def test_the_second_run_is_told_who_has_the_folder_until_that_is_killed(tmp_path):
    folder, (inside, out) = str(tmp_path / "training" / "abc"), (subprocess.PIPE, subprocess.PIPE)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdin=inside, stdout=out, text=True)
    try:
        left = int(holder.stdout.readline())
        refused = pytest.raises(TrainingError, match=r"another run is at work in .*training/abc: process ")
        with refused as told, only_job(folder, False):
            pass
        assert f"process {holder.pid} on {socket.gethostname()}, since 20" in told.value.what
        assert f"kill {holder.pid}" in told.value.todo
        # Another training is not disturbed.
        with only_job(f"{folder}d", False):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    try:
        with only_job(folder, False):
            assert json.loads((tmp_path / "training" / "abc.lock").read_text())["pid"] == os.getpid()
    finally:
        os.kill(left, signal.SIGKILL)
    assert list((tmp_path / "training").iterdir()) == []


def test_it_is_given_back_after_an_error(tmp_path):
    folder = str(tmp_path / "training" / "abc")
    with pytest.raises(ZeroDivisionError), locked(folder):
        raise ZeroDivisionError
    with locked(folder):
        pass


def test_where_there_are_no_locks_nobody_is_kept_out(tmp_path, monkeypatch):
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    folder = str(tmp_path / "training" / "abc")
    with locked(folder), locked(folder):
        pass
    assert list((tmp_path / "training").iterdir()) == []


def test_of_the_tasks_of_a_cluster_the_chief_has_it(tmp_path, monkeypatch):
    folder = str(tmp_path / "training" / "abc")
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    with only_job(folder, False):
        for kind, refused in (("worker", False), ("chief", True)):
            task = {"type": kind, "index": 0}
            monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
            if refused:
                with pytest.raises(TrainingError), only_job(folder, False):
                    pass
            else:
                with only_job(folder, False):
                    pass
