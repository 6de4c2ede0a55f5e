"""Two jobs of one pipeline do not train in the same folder, on a mounted disk or in a bucket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional

import pytest

from tests.components.trainer.conftest import at_once
from tests.store.bucket import BUCKET, Bucket
from tests.waiting import wait_until
from tfx_estimator.components.trainer import training_claim
from tfx_estimator.components.trainer.training_claim import _Claim, claimed, process
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import PipelineError, StoppedError, TrainingError

BEAT, PATIENCE = 0.1, 1.0
FOLDER, CLAIM = f"gs://{BUCKET}/training/abc-600", "training/abc-600.claim"


@pytest.fixture
def bucket(monkeypatch) -> Iterator[Bucket]:
    with Bucket() as bucket:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket.address)
        yield bucket


@pytest.fixture
def elsewhere(monkeypatch) -> None:
    """Makes each claim look like another machine's, whose processes are invisible."""
    alone = {"host": "elsewhere", "pid": 1}
    monkeypatch.setattr(training_claim, "process", lambda: {**alone, "space": uuid.uuid4().hex})


class Place:
    """A folder of concurrent jobs, with another job's claim on it."""

    def __init__(self, root: Any, bucket: Optional[Bucket]) -> None:
        self._path, self._bucket = root / "training" / "abc-600.claim", bucket
        self._path.parent.mkdir()
        self.folder = FOLDER if bucket else str(self._path).removesuffix(".claim")

    def write(self, beat: int = 0, **process: Any) -> None:
        text = json.dumps({"owner": "other", "host": "node-7", "space": "b", "pid": 1, **process, "beat": beat})
        if self._bucket:
            self._bucket.do("POST", CLAIM, None, {"metadata": {"claim": text}})
            return
        draft = self._path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self._path)

    def damage(self) -> None:
        if self._bucket:
            self._bucket.do("POST", CLAIM, None, {"metadata": {"any": "other"}})
        else:
            self._path.write_text('{"owner": "oth')

    def read(self) -> dict[str, Any]:
        if self._bucket:
            return json.loads(self._bucket.objects[CLAIM]["metadata"]["claim"])
        return json.loads(self._path.read_text())

    def is_empty(self) -> bool:
        return not (self._bucket.objects if self._bucket else list(self._path.parent.iterdir()))


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path) -> Place:
    return Place(tmp_path, request.getfixturevalue("bucket") if request.param == "bucket" else None)


def take(place: Place) -> float:
    """Claims the folder, stays and releases it; returns how long it waited."""
    begun = time.monotonic()
    with claimed(place.folder, BEAT, PATIENCE) as check:
        waited, first = time.monotonic() - begun, place.read()
        assert first["pid"] == os.getpid()
        wait_until(lambda: place.read() != first, f"a beat after {first}", 10, every=0.01)
        check()
    assert place.is_empty()
    return waited


def test_a_living_job_is_not_disturbed(place):
    place.write()
    ended = threading.Event()

    def live() -> None:
        beat = 0
        while not ended.wait(BEAT):
            place.write(beat := beat + 1)

    (other := threading.Thread(target=live)).start()
    try:
        with pytest.raises(TrainingError, match=r"another job trains in .*abc-600, on node-7"):
            take(place)
    finally:
        ended.set()
        other.join()
    assert place.read()["owner"] == "other"


def test_a_killed_process_loses_its_claim_at_once_on_its_machine_and_elsewhere_later(place):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    place.write(**{**process(), "pid": ended.pid})
    assert take(place) < PATIENCE
    # The pid of a process in another container means nothing.
    place.write(host=socket.gethostname(), pid=ended.pid)
    assert take(place) >= PATIENCE


def test_a_claim_that_was_taken_over_ends_the_job_and_is_left_alone(place):
    taken_over = pytest.raises(StoppedError, match=r"on node-7 has taken over .*abc-600")
    with signals.handled(), taken_over as caught, claimed(place.folder, BEAT, PATIENCE) as check:
        place.write(beat=7)
        with contextlib.suppress(signals.SignalledError):
            time.sleep(30)
        check()
    assert caught.value.exit_code == 143
    assert place.read()["beat"] == 7


def test_an_object_that_is_no_claim_is_not_ignored(bucket, tmp_path):
    place = Place(tmp_path, bucket)
    place.damage()
    with pytest.raises(PipelineError, match=r"abc-600.claim cannot be read or written"), claimed(place.folder):
        raise AssertionError
    assert not place.is_empty()


def test_a_file_that_a_power_failure_left_garbled_is_no_claim(tmp_path, monkeypatch):
    monkeypatch.setattr(training_claim, "RETRY_SECONDS", (0.01, 0.01))
    place = Place(tmp_path, None)
    place.damage()
    assert take(place) < PATIENCE


def test_an_incomplete_claim_is_read_once_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(training_claim, "RETRY_SECONDS", (0.1,) * 50)
    place = Place(tmp_path, None)
    place.damage()
    (later := threading.Timer(0.3, place.write, kwargs={"beat": 3})).start()
    assert training_claim.ClaimFile(f"{place.folder}.claim").read()["beat"] == 3
    later.join()


def test_of_concurrent_jobs_in_a_folder_one_trains(tmp_path):
    place = Place(tmp_path, None)

    def come(train: Callable[[], None]) -> None:
        with claimed(place.folder, 2.0, PATIENCE):
            train()

    # They wait for a killed job's claim and find at the same time that it may be taken over.
    place.write()
    assert sorted("trains in" in each for each in at_once(come)) == [False, True, True, True]


def stored_claim(bucket: Bucket) -> dict[str, Any]:
    return json.loads(bucket.objects[CLAIM]["metadata"]["claim"])


def taken() -> _Claim:
    """Takes the claim without renewing it, like a killed or suspended job."""
    claim = _Claim(FOLDER)
    claim.take(0, PATIENCE)
    return claim


def meanwhile(bucket: Bucket, verb: str, then: Callable[[], Any]) -> None:
    """Delays the next request of a verb until another action has happened."""
    left = [then]

    def before(each: str) -> None:
        if each == verb and left:
            left.pop()()

    bucket.before = before


def lose(bucket: Bucket, verb: str) -> list[str]:
    """Loses the store's next response to a verb; returns a list that is empty afterwards."""
    left = [verb]
    bucket.after = lambda each: bool(each == verb and left and left.pop())
    return left


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.usefixtures("elsewhere")
def test_of_eight_concurrent_jobs_one_trains(bucket, left):
    if left:
        # They wait for a killed job's claim and find at the same time that it may be taken over.
        taken()
    begun, first, written = time.monotonic(), iter(range(8)), threading.Barrier(8)

    def before(verb: str) -> None:
        if verb == "POST" and next(first, None) is not None:
            # All have read the same before the first write, and each reads again before the next one.
            time.sleep(0.1 * written.wait(30))

    bucket.before = before

    def come(train: Callable[[], None]) -> None:
        with claimed(FOLDER, BEAT, PATIENCE) as check:
            assert not left or time.monotonic() - begun >= PATIENCE
            train()
            check()

    assert sorted("another job trains in" in each for each in at_once(come, 8)) == [False] + [True] * 7
    assert bucket.objects == {}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.usefixtures("elsewhere")
def test_a_suspended_job_notices_a_take_over_whenever_its_heartbeat_arrives(bucket, ended):
    slept, other = taken(), _Claim(FOLDER)

    def take_over() -> None:
        other.take(0, PATIENCE)
        if ended:
            other.release()

    now = slept.check()
    # In transit while the other job takes the claim over and perhaps ends.
    meanwhile(bucket, "POST", take_over)
    slept._file.write(slept._mine, now)
    assert bucket.objects == {} if ended else stored_claim(bucket)["owner"] == other._mine["owner"]
    with pytest.raises(StoppedError, match=r"has taken over .*abc-600"):
        slept.check()
    slept.release()
    if not ended:
        other.check()
        other.release()
    assert bucket.objects == {}


@pytest.mark.usefixtures("elsewhere")
def test_a_taken_over_claim_is_not_removed_by_its_former_owner(bucket):
    slept, other = taken(), _Claim(FOLDER)
    meanwhile(bucket, "DELETE", lambda: other.take(0, PATIENCE))
    slept.release()
    other.check()
    assert stored_claim(bucket)["owner"] == other._mine["owner"]


def test_a_job_keeps_its_claim_after_a_lost_response(bucket):
    left = lose(bucket, "POST")
    with claimed(FOLDER, BEAT, 600) as check:
        assert not left
        left = lose(bucket, "POST")
        wait_until(lambda: not left, "a beat", 10, every=0.01)
        beat = stored_claim(bucket)["beat"]
        wait_until(lambda: stored_claim(bucket)["beat"] > beat, "another one", 20, every=0.01)
        check()
        left = lose(bucket, "DELETE")
    assert not left
    assert bucket.objects == {}


def test_an_unavailable_store_is_not_taken_for_another_job(bucket, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    with pytest.raises(PipelineError, match="cannot be read or written"), claimed("gs://no-such-bucket/training/abc"):
        raise AssertionError
    with claimed(FOLDER, BEAT, PATIENCE) as check:
        bucket.before = lambda verb: 403
        wait_until(lambda: "the claim cannot be renewed" in caplog.text, "a beat that fails", 20, every=0.01)
        with pytest.raises(PipelineError, match=r"abc-600.claim cannot be read or written: .*told to refuse"):
            check()
        bucket.before = lambda verb: None
        check()
    assert bucket.objects == {}
