"""Two jobs of one pipeline do not train in one folder of a store, however their steps mix; the store is a folder."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.conftest import at_once
from tests.waiting import wait_until
from tfx_estimator.components.trainer import claim_file, stored_claim, training_claim
from tfx_estimator.components.trainer.stored_claim import StoredClaim
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.errors import StoppedError, TrainingError

pytestmark = pytest.mark.unit

SETTLE, PATIENCE = 0.005, 0.5


@pytest.fixture
def folder(tmp_path, monkeypatch) -> str:
    """The training folder; each claim is as of another machine."""
    monkeypatch.setattr(training_claim, "is_address", lambda path: True)
    alone = {"host": "elsewhere", "pid": 1}
    monkeypatch.setattr(stored_claim, "process", lambda: {**alone, "space": uuid.uuid4().hex})
    (tmp_path / "training").mkdir()
    return str(tmp_path / "training" / "abc-600")


def files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).parent.iterdir())


def test_a_folder_that_nobody_has_is_claimed_and_given_back(folder):
    with claimed(folder, 0.02, PATIENCE) as check:
        (name,) = files(folder)
        assert name.startswith("abc-600.claim.00000001.")
        path = str(Path(folder).parent / name)
        first = claim_file.read_claim(path)
        wait_until(lambda: claim_file.read_claim(path) != first, f"a beat after {first}", 10, every=0.01)
        check()
    assert files(folder) == []


@pytest.mark.parametrize("seed", range(4))
def test_of_those_that_come_at_once_one_goes_on(folder, monkeypatch, seed):
    chance, write = random.Random(seed), stored_claim.write_whole

    def slowly(path: str, text: Any) -> None:
        time.sleep(chance.random() * 0.02)
        write(path, text)
        time.sleep(chance.random() * 0.02)

    monkeypatch.setattr(stored_claim, "write_whole", slowly)

    def come(train: Callable[[], None]) -> None:
        with claimed(folder, 0.1, PATIENCE * 4) as check:
            check()
            train()
            check()

    assert sorted("another job trains in" in each for each in at_once(come)) == [False, True, True, True]
    assert files(folder) == []


def test_what_a_killed_job_left_is_taken_over_after_a_while_and_it_finds_that(folder):
    killed = StoredClaim(folder)
    killed.take(SETTLE, PATIENCE)
    started = time.monotonic()
    with claimed(folder, 0.05, PATIENCE) as check:
        assert time.monotonic() - started >= PATIENCE
        # It only slept: it may write once more before it looks, and does not go on.
        killed._beat()
        with pytest.raises(StoppedError, match=r"on elsewhere has taken over .*abc-600"):
            killed.live()
        check()
        killed.give_back()
    assert files(folder) == []


def interrupt(monkeypatch, at: str, then: Callable[[], Any]) -> None:
    """Has the next write of a file whose name holds a word be stalled while something else happens."""
    write, left = stored_claim.write_whole, [then]

    def stalled(path: str, text: Any) -> None:
        if at in path and left:
            left.pop()()
        write(path, text)

    monkeypatch.setattr(stored_claim, "write_whole", stalled)


def test_a_write_that_arrives_when_who_took_over_has_ended_as_well_finds_that(folder, monkeypatch):
    def take_over() -> None:
        with claimed(folder, 0.05, PATIENCE):
            pass

    stalled = StoredClaim(folder)
    stalled.take(SETTLE, PATIENCE)
    interrupt(monkeypatch, ".00000001.", take_over)
    with pytest.raises(StoppedError, match=r"has taken over .*abc-600"):
        stalled.live()
    assert len(files(folder)) == 2
    # And nobody waits for it.
    started = time.monotonic()
    with claimed(folder, 0.05, 60.0) as check:
        assert time.monotonic() - started < 30
        check()
    stalled.give_back()
    assert files(folder) == []


def test_that_a_killed_job_is_over_is_known_for_a_week(folder, monkeypatch):
    StoredClaim(folder).take(SETTLE, PATIENCE)
    for _ in range(2):
        with claimed(folder, 0.05, PATIENCE):
            pass
        (name,) = files(folder)
        assert name.startswith("abc-600.claim.over.")
    # What it wrote last may have arrived after its end.
    said = (Path(folder).parent / name).read_text()
    (Path(folder).parent / f"abc-600.claim.00000001.{name.split('.')[3]}").write_text(said)
    now = time.time()
    monkeypatch.setattr(stored_claim.time, "time", lambda: now + 8 * 86_400)
    with claimed(folder, 0.05, 60.0):
        assert len(files(folder)) == 1
    assert files(folder) == []


def test_that_a_job_is_over_holds_whoever_takes_his_word_back(folder, monkeypatch):
    slow, other, third = (StoredClaim(folder) for _ in range(3))
    slow.take(SETTLE, PATIENCE)

    def go_on() -> None:
        other.take(SETTLE, PATIENCE)
        slow._beat()

    # While the third one says that the first is over, another one does, and goes on; then the first one wakes.
    interrupt(monkeypatch, ".over.", go_on)
    with pytest.raises(TrainingError, match="another job trains in"):
        third.take(SETTLE, PATIENCE)
    with pytest.raises(StoppedError):
        slow.live()
    other.look()
    for each in (slow, other):
        each.give_back()
    assert files(folder) == []


@pytest.mark.parametrize("place", ["before its number", "after its number"])
def test_one_that_sleeps_while_it_chooses_does_not_go_on_beside_another(folder, monkeypatch, place):
    sleeper, other = StoredClaim(folder), StoredClaim(folder)
    write = stored_claim.write_whole

    def interrupted(path: str, text: Any) -> None:
        if ".0000" in path and not taken:
            taken.append(path)
            if place == "after its number":
                write(path, text)
            other.take(SETTLE, PATIENCE)
        write(path, text)

    taken: list[str] = []
    monkeypatch.setattr(stored_claim, "write_whole", interrupted)
    with pytest.raises(TrainingError, match="another job trains in"):
        sleeper.take(SETTLE, PATIENCE)
    other.look()
    other.give_back()
    assert files(folder) == []


def test_a_job_that_lives_is_not_disturbed(folder):
    def told(error: Callable[[], Any]) -> None:
        with pytest.raises(TrainingError, match=r"another job trains in .*abc-600, on elsewhere"):
            error()

    with claimed(folder, 0.05, PATIENCE) as check:
        told(lambda: StoredClaim(folder).take(SETTLE, PATIENCE))
        check()
        assert len(files(folder)) == 1


def test_a_process_that_has_ended_here_is_not_waited_for(folder, monkeypatch):
    monkeypatch.setattr(stored_claim, "process", claim_file.process)
    StoredClaim(folder).take(SETTLE, PATIENCE)
    started = time.monotonic()
    StoredClaim(folder).take(SETTLE, 60.0)
    assert time.monotonic() - started < 30
