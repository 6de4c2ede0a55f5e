"""Two jobs of one pipeline do not train in the same folder of s3://."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.components.trainer.conftest import at_once
from tests.store.s3 import ADDRESS, S3, fresh, serving
from tests.waiting import wait_until
from tfx_estimator.components.trainer import training_claim
from tfx_estimator.components.trainer.training_claim import _Claim, claimed
from tfx_estimator.pipeline.base.errors import PipelineError, StoppedError

BEAT, PATIENCE = 0.2, 1.5
FOLDER = f"{ADDRESS}/training/abc-600"


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch) -> None:
    """Makes each claim look like another machine's, whose processes are invisible."""
    monkeypatch.setattr(training_claim, "process", lambda: {"host": "node-7", "pid": 1, "space": uuid.uuid4().hex})


@pytest.mark.parametrize("left", [False, True])
def test_of_eight_concurrent_jobs_one_trains(server, left):
    if left:  # by a killed job
        _Claim(FOLDER).take(0, PATIENCE)
    begun = time.monotonic()

    def come(train: Callable[[], None]) -> None:
        with claimed(FOLDER, BEAT, PATIENCE) as check:
            assert not left or time.monotonic() - begun >= PATIENCE
            train()
            check()

    assert sorted("another job trains in" in each for each in at_once(come, 8)) == [False] + [True] * 7
    assert server.names() == []


def test_a_job_renews_its_claim_and_one_that_was_suspended_notices_that_it_lost_it(server):
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        first = _Claim(FOLDER)._file.read()
        wait_until(lambda: _Claim(FOLDER)._file.read()["beat"] > first["beat"] + 1, "two beats", 20)
        check()
    slept, other = _Claim(FOLDER), _Claim(FOLDER)
    slept.take(0, PATIENCE)
    now = slept.check()
    other.take(0, PATIENCE)
    slept._file.write(slept._mine, now)
    with pytest.raises(StoppedError, match=r"on node-7 has taken over s3://some-bucket/training/abc-600"):
        slept.check()
    slept.release()
    other.check()
    other.release()
    assert server.names() == []


def test_a_store_without_conditional_writes_is_not_trusted(server, monkeypatch):
    monkeypatch.setattr(server, "conditions", False)
    with pytest.raises(PipelineError, match="ignores the condition of a write"), claimed(FOLDER, BEAT, PATIENCE):
        raise AssertionError


def test_a_silent_store_is_not_taken_for_a_free_folder():
    with serving() as server:
        _Claim(FOLDER).take(0, PATIENCE)
        with server.away(), fresh(), pytest.raises(PipelineError, match="did not answer for 1 s"):
            _Claim(FOLDER)._file.read(1)
        assert server.names() == ["training/abc-600.claim"]
