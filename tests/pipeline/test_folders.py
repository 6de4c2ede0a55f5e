"""The lock of a pipeline's folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time

import pytest

from tfx_estimator.pipeline.base import lock as module
from tfx_estimator.pipeline.base.errors import RETRYABLE, PipelineError, exit_code_of
from tfx_estimator.pipeline.folders import PipelineFolders, only_run


@pytest.fixture
def folders(tmp_path) -> PipelineFolders:
    return PipelineFolders(str(tmp_path), "mine")


def test_a_second_run_is_refused_at_once(folders, monkeypatch):
    monkeypatch.delenv(RETRYABLE, raising=False)
    began = time.monotonic()
    with only_run(folders), pytest.raises(PipelineError, match="another run is using") as caught, only_run(folders):
        raise AssertionError
    assert time.monotonic() - began < 1
    assert exit_code_of(caught.value) == 6
    with only_run(folders):
        pass


def test_a_restarted_task_waits_for_the_lock_of_a_lost_one(folders, monkeypatch):
    monkeypatch.setenv(RETRYABLE, "138")
    monkeypatch.setattr(module, "_LOST_POLL_SECONDS", 0.05)
    monkeypatch.setattr(module, "_LOST_SECONDS", 0.2)
    with only_run(folders), pytest.raises(PipelineError, match="another run is using") as caught, only_run(folders):
        raise AssertionError
    assert exit_code_of(caught.value) == 138
    monkeypatch.setattr(module, "_LOST_SECONDS", 30.0)
    with open(os.path.join(folders.local, ".lock"), encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threading.Timer(0.3, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with only_run(folders), pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.EACCES, "another run is using"),
        (errno.ESTALE, "cannot be locked: Stale file handle"),
        # A file system without locks is used all the same.
        (errno.ENOLCK, ""),
        (errno.EOPNOTSUPP, ""),
    ],
)
def test_errors_of_the_lock_are_reported(folders, monkeypatch, caplog, code, message):
    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.delenv(RETRYABLE, raising=False)
    monkeypatch.setattr(fcntl, "flock", flock)
    refused = pytest.raises(PipelineError, match=message) if message else contextlib.nullcontext()
    with refused, only_run(folders):
        assert not message
        assert "has no locks" in caplog.text
