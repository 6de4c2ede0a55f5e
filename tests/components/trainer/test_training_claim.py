"""Two jobs of one pipeline do not train in one folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.errors import TrainingError

pytestmark = pytest.mark.unit

BEAT, PATIENCE = 0.05, 0.6


@pytest.fixture
def claim(tmp_path):
    """Writes the claim of somebody else."""
    path = tmp_path / "training" / "abc-600.claim"
    path.parent.mkdir()

    def claim(beat: int = 0, host: str = "elsewhere", pid: int = 1) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"owner": "other", "host": host, "pid": pid, "beat": beat}))
        draft.replace(path)

    claim.path = path
    return claim


def _take(claim) -> None:
    folder = str(claim.path)[: -len(".claim")]
    with claimed(folder, BEAT, PATIENCE):
        first = json.loads(claim.path.read_text())
        assert first["pid"] == os.getpid()
        deadline = time.monotonic() + 10
        while json.loads(claim.path.read_text()) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert list(claim.path.parent.iterdir()) == []


def test_a_folder_that_nobody_has_is_claimed_and_given_back(claim):
    _take(claim)


def test_a_living_job_is_not_disturbed(claim):
    claim()
    ended = threading.Event()

    def live() -> None:
        beat = 0
        while not ended.wait(BEAT):
            claim(beat := beat + 1)

    (other := threading.Thread(target=live)).start()
    try:
        with pytest.raises(TrainingError, match=r"another job trains in .*abc-600, on elsewhere"):
            _take(claim)
    finally:
        ended.set()
        other.join()
    assert json.loads(claim.path.read_text())["owner"] == "other"


def test_what_a_killed_job_left_is_taken_over_after_a_while(claim):
    claim()
    started = time.monotonic()
    _take(claim)
    assert time.monotonic() - started >= PATIENCE


def test_what_a_killed_process_of_this_machine_left_is_taken_over_at_once(claim):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    claim(host=socket.gethostname(), pid=ended.pid)
    started = time.monotonic()
    with claimed(str(claim.path)[: -len(".claim")], BEAT, patience=60):
        pass
    assert time.monotonic() - started < 30
