"""Two jobs of one pipeline do not train in one folder of a bucket, as Google's client asks a server for it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.components.trainer.conftest import at_once
from tests.store.bucket import BUCKET, Bucket, serving_bucket
from tests.waiting import wait_until
from tfx_estimator.components.trainer import training_claim
from tfx_estimator.components.trainer.training_claim import _Claim, claimed
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import PipelineError, StoppedError, TrainingError

pytestmark = pytest.mark.unit

BEAT, PATIENCE = 0.1, 1.5
FOLDER, CLAIM = f"gs://{BUCKET}/training/abc-600", "training/abc-600.claim"
# Has the folder until it is killed.
HOLDER = """
import sys, time
from tfx_estimator.components.trainer.training_claim import claimed

with claimed(sys.argv[1], 0.1, 60):
    print("claimed", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def bucket(monkeypatch) -> Iterator[Bucket]:
    """The store; each claim is as of another machine."""
    alone = {"host": "elsewhere", "pid": 1}
    monkeypatch.setattr(training_claim, "process", lambda: {**alone, "space": uuid.uuid4().hex})
    with serving_bucket() as bucket:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket.address)
        yield bucket


def said(bucket: Bucket) -> dict[str, Any]:
    return json.loads(bucket.objects[CLAIM]["metadata"]["claim"])


def taken(folder: str = FOLDER) -> _Claim:
    """Takes it, and gives no sign of life, as a job that was killed or sleeps."""
    claim = _Claim(folder)
    claim.take(0, PATIENCE)
    return claim


def meanwhile(bucket: Bucket, verb: str, then: Callable[[], Any]) -> None:
    """Has the next request of a verb arrive at the store after something else has happened."""
    left = [then]

    def before(each: str) -> None:
        if each == verb and left:
            left.pop()()

    bucket.before = before


def lose(bucket: Bucket, verb: str) -> list[str]:
    """Has the store's next answer to a verb be lost; returns what becomes empty then."""
    left = [verb]
    bucket.after = lambda each: bool(each == verb and left and left.pop())
    return left


def test_a_folder_that_nobody_has_is_claimed_and_given_back(bucket):
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        first = bucket.objects[CLAIM]["generation"]
        assert said(bucket)["host"] == "elsewhere"
        wait_until(lambda: said(bucket)["beat"] > 1, "two beats", 10, every=0.01)
        assert int(bucket.objects[CLAIM]["generation"]) >= int(first) + 2
        check()
    assert bucket.objects == {}


@pytest.mark.parametrize("left", [False, True])
def test_of_eight_that_come_at_once_one_goes_on(bucket, left):
    if left:
        # They wait for a killed job's, and find at the same time that it may be taken over.
        taken()
    begun, first, written = time.monotonic(), iter(range(8)), threading.Barrier(8)

    def before(verb: str) -> None:
        if verb == "POST" and next(first, None) is not None:
            # All have seen the same when the first write is done, and each looks before the next one is.
            time.sleep(0.1 * written.wait(30))

    bucket.before = before

    def come(train: Callable[[], None]) -> None:
        with claimed(FOLDER, BEAT, PATIENCE) as check:
            assert not left or time.monotonic() - begun >= PATIENCE
            train()
            check()

    assert sorted("another job trains in" in each for each in at_once(come, 8)) == [False] + [True] * 7
    assert bucket.objects == {}


def test_a_job_that_lives_is_not_disturbed(bucket):
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        owner = said(bucket)["owner"]
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"another job trains in .*abc-600, on elsewhere"):
                taken()
        check()
        assert said(bucket)["owner"] == owner
    with claimed(FOLDER, BEAT, 600):
        assert said(bucket)["owner"] != owner


def test_what_a_killed_process_left_is_taken_over_after_a_while(bucket):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, FOLDER], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(TrainingError, match="another job trains in"):
            taken()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    left = said(bucket)
    assert left["pid"] == holder.pid
    # As of another machine, whose processes nobody sees.
    left["space"] = "elsewhere"
    bucket.objects[CLAIM]["metadata"]["claim"] = json.dumps(left)
    started = time.monotonic()
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        assert time.monotonic() - started >= PATIENCE
        check()
    assert bucket.objects == {}


def test_a_process_that_has_ended_here_is_not_waited_for(bucket, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket.address)
    taken()
    with claimed(FOLDER, BEAT, 600) as check:
        check()


@pytest.mark.parametrize("ended", [False, True])
def test_one_that_slept_and_was_taken_over_finds_that_whenever_its_sign_of_life_arrives(bucket, ended):
    slept, other = taken(), _Claim(FOLDER)

    def take_over() -> None:
        other.take(0, PATIENCE)
        if ended:
            other.give_back()

    now = slept.look()
    # On its way to the store while the other one takes it, and perhaps ends.
    meanwhile(bucket, "POST", take_over)
    slept._file.write(slept._mine, now)
    assert bucket.objects == {} if ended else said(bucket)["owner"] == other._mine["owner"]
    with pytest.raises(StoppedError, match=r"has taken over .*abc-600"):
        slept.look()
    slept.give_back()
    if not ended:
        other.look()
        other.give_back()
    assert bucket.objects == {}


def test_what_was_taken_over_is_not_removed_by_who_had_it(bucket):
    slept, other = taken(), _Claim(FOLDER)
    meanwhile(bucket, "DELETE", lambda: other.take(0, PATIENCE))
    slept.give_back()
    other.look()
    assert said(bucket)["owner"] == other._mine["owner"]


def test_a_claim_that_was_taken_over_ends_the_job(bucket):
    other = json.dumps({"owner": "other", "host": "node-7", "space": "b", "pid": 1, "beat": 0})
    taken_over = pytest.raises(StoppedError, match=r"on node-7 has taken over .*abc-600")
    with signals.handled(), taken_over as caught, claimed(FOLDER, BEAT, PATIENCE) as check:
        bucket.do("POST", CLAIM, None, {"metadata": {"claim": other}})
        with contextlib.suppress(signals.SignalledError):
            time.sleep(30)
        check()
    assert caught.value.exit_code == 143
    assert said(bucket)["owner"] == "other"


def test_whose_answer_was_lost_has_the_folder_all_the_same(bucket):
    left = lose(bucket, "POST")
    with claimed(FOLDER, BEAT, 600) as check:
        assert not left
        left = lose(bucket, "POST")
        wait_until(lambda: not left, "a beat", 10, every=0.01)
        beat = said(bucket)["beat"]
        wait_until(lambda: said(bucket)["beat"] > beat, "another one", 20, every=0.01)
        check()
        left = lose(bucket, "DELETE")
    assert not left
    assert bucket.objects == {}


def test_a_store_that_is_away_is_no_other_job(bucket, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        bucket.before = lambda verb: 403
        wait_until(lambda: "the claim cannot be renewed" in caplog.text, "a beat that fails", 20, every=0.01)
        with pytest.raises(PipelineError, match=r"abc-600.claim cannot be read or written: .*told to refuse"):
            check()
        bucket.before = lambda verb: None
        check()
    assert bucket.objects == {}


@pytest.mark.parametrize("folder", [FOLDER, "gs://no-such-bucket/training/abc-600"])
def test_a_claim_that_cannot_be_read_or_written_is_not_taken_for_none(bucket, folder):
    bucket.do("POST", CLAIM, None, {"metadata": {"any": "other"}})
    with pytest.raises(PipelineError, match=r"abc-600.claim cannot be read or written"), claimed(folder):
        raise AssertionError
    assert bucket.objects[CLAIM]["metadata"] == {"any": "other"}


def test_without_googles_client_it_is_said_what_to_install(bucket, monkeypatch):
    import google.cloud

    monkeypatch.delattr(google.cloud, "storage", raising=False)
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    with pytest.raises(PipelineError) as told, claimed(FOLDER):
        raise AssertionError
    assert told.value.todo == "pip install google-cloud-storage"
