"""Tasks that share nothing but an object store stop where the chief says; a folder stands in for the store."""

from __future__ import annotations

import pytest

from tfx_estimator.components.trainer.protocol.stop import asked_to_stop, is_over
from tfx_estimator.components.trainer.supervisor.stopping import StoredStop

pytestmark = pytest.mark.unit


@pytest.fixture
def task(tmp_path):
    """Makes a task's side, and its stop file."""
    (tmp_path / "training").mkdir()

    def make(name: str) -> tuple[StoredStop, str]:
        own = str(tmp_path / f"{name}-stop")
        return StoredStop(str(tmp_path / "training"), own), own

    return make


@pytest.mark.parametrize("over", [False, True])
def test_the_others_take_over_the_chiefs_word(task, over):
    (chief, _), (worker, own) = task("chief"), task("worker")
    assert not worker.hear()
    assert asked_to_stop(own) is None
    chief.ask(120, over)
    assert worker.hear()
    assert (asked_to_stop(own), is_over(own)) == (120, over)


def test_what_an_earlier_training_was_told_is_not_heard(task, tmp_path):
    task("chief")[0].ask(120, over=True)
    later, own = task("worker")
    assert not later.hear()
    assert asked_to_stop(own) is None
    later.forget()
    assert list((tmp_path / "training").iterdir()) == []


def test_a_store_that_is_away_keeps_no_task_from_stopping(task, tmp_path):
    chief, own = task("chief")
    (tmp_path / "training").rmdir()
    assert not chief.hear()
    chief.ask(120, over=False)
    assert asked_to_stop(own) == 120
    chief.forget()
