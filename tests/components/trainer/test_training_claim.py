"""Two jobs of one pipeline do not train in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.components.trainer.conftest import at_once
from tests.waiting import wait_until
from tfx_estimator.components.trainer import training_claim
from tfx_estimator.components.trainer.folder_lock import process
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import PipelineError, StoppedError, TrainingError

pytestmark = pytest.mark.unit

BEAT, PATIENCE = 0.05, 0.6


@pytest.fixture
def claim(tmp_path):
    """Writes the claim of somebody else."""
    path = tmp_path / "training" / "abc-600.claim"
    path.parent.mkdir()

    def claim(beat: int = 0, **process) -> None:
        draft = path.with_suffix(".draft")
        process = {"host": "elsewhere", "space": "other", "pid": 1, **process}
        draft.write_text(json.dumps({"owner": "other", **process, "beat": beat}))
        draft.replace(path)

    claim.path = path
    return claim


def _take(claim) -> None:
    folder = str(claim.path)[: -len(".claim")]
    with claimed(folder, BEAT, PATIENCE):
        first = json.loads(claim.path.read_text())
        assert first["pid"] == os.getpid()
        wait_until(lambda: json.loads(claim.path.read_text()) != first, f"a beat after {first}", 10, every=0.01)
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
    claim(**{**process(), "pid": ended.pid})
    started = time.monotonic()
    with claimed(str(claim.path)[: -len(".claim")], BEAT, patience=60):
        pass
    assert time.monotonic() - started < 30


def test_the_number_of_a_process_of_another_container_tells_nothing(claim):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    claim(host=socket.gethostname(), pid=ended.pid)
    started = time.monotonic()
    _take(claim)
    assert time.monotonic() - started >= PATIENCE


def test_of_those_that_come_at_once_one_goes_on(claim):
    def come(train: Callable[[], None]) -> None:
        with claimed(str(claim.path)[: -len(".claim")], 2.0, PATIENCE):
            train()

    # They wait for what a killed job left, and find at the same time that it may be taken over.
    claim()
    assert sorted("trains in" in each for each in at_once(come)) == [False, True, True, True]


def test_a_claim_that_was_taken_over_ends_the_job_and_is_left_alone(claim):
    folder = str(claim.path)[: -len(".claim")]
    taken_over = pytest.raises(StoppedError, match=r"on elsewhere has taken over .*abc-600")
    with signals.handled(), taken_over as caught, claimed(folder, BEAT, PATIENCE) as check:
        claim(beat=7)
        with contextlib.suppress(signals.SignalledError):
            time.sleep(30)
        check()
    assert caught.value.exit_code == 143
    assert json.loads(claim.path.read_text())["beat"] == 7


def test_a_claim_that_cannot_be_read_is_not_taken_for_none(claim, monkeypatch):
    monkeypatch.setattr(training_claim, "RETRY_SECONDS", (0.01, 0.01))
    claim.path.write_text('{"owner": "oth')
    with pytest.raises(PipelineError, match=r"abc-600.claim cannot be read"):
        _take(claim)
    assert claim.path.read_text() == '{"owner": "oth'


def test_a_claim_that_is_being_written_is_read_once_it_is(claim, monkeypatch):
    monkeypatch.setattr(training_claim, "RETRY_SECONDS", (0.1,) * 50)
    claim.path.write_text('{"owner": "oth')
    (later := threading.Timer(0.3, claim, kwargs={"beat": 3})).start()
    assert training_claim.ClaimFile(str(claim.path)).read()["beat"] == 3
    later.join()
