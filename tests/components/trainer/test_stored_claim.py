"""Two jobs of one pipeline do not train in one folder of a store, however their steps mix; the store is a folder."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfx_estimator.components.trainer import claim_file, stored_claim, training_claim
from tfx_estimator.components.trainer.stored_claim import StoredClaim
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.errors import StoppedError, TrainingError

pytestmark = pytest.mark.unit

SETTLE, PATIENCE = 0.005, 0.5


@pytest.fixture
def folder(tmp_path, monkeypatch) -> str:
    """The training folder; each claim is as of another machine."""
    monkeypatch.setattr(training_claim, "is_stored", lambda path: True)
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
        deadline = time.monotonic() + 10
        while claim_file.read_claim(path) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        check()
    assert files(folder) == []


@pytest.mark.parametrize("seed", range(4))
def test_of_those_that_come_at_once_one_goes_on(folder, monkeypatch, seed):
    chance, start, leave = random.Random(seed), threading.Barrier(4), threading.Event()
    write, said = stored_claim.write_whole, []

    def slowly(path: str, text: Any) -> None:
        time.sleep(chance.random() * 0.02)
        write(path, text)
        time.sleep(chance.random() * 0.02)

    monkeypatch.setattr(stored_claim, "write_whole", slowly)

    def come() -> None:
        start.wait()
        try:
            with claimed(folder, 0.1, PATIENCE * 4) as check:
                check()
                said.append("on")
                leave.wait(30)
                check()
        except TrainingError as error:
            said.append(error.what)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for each in threads:
        each.start()
    deadline = time.monotonic() + 60
    while len(said) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    leave.set()
    for each in threads:
        each.join()
    assert sorted("another job trains in" in each for each in said) == [False, True, True, True]
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
