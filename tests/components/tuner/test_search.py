"""The search: which trials it runs, in which order it reports their results, and when it gives up."""

from __future__ import annotations

import threading
import time

import pytest

from tests.waiting import wait_until
from tfx_estimator.components.tuner.executor import lines
from tfx_estimator.components.tuner.search import Search
from tfx_estimator.components.tuner.trials import COMPLETED, FAILED, Proposals, Result, Trial, best_of
from tfx_estimator.pipeline.base.errors import TrainingError, UserCodeError
from tfx_estimator.pipeline.config.tune import TuneSection


def search(run, **values) -> list[Result]:
    tune = TuneSection.parse_obj({"ranges": {"x": {"min": 0.0, "max": 1.0}}, "max_trials": 9, **values})
    proposals = Proposals(tune, 90)
    try:
        return Search(tune, proposals, run).search()
    finally:
        proposals.close()


def judged(trial: Trial) -> Result:
    score = 1 - (trial.values["x"] - 0.3) ** 2
    return Result(trial.number, trial.values, COMPLETED, score, {"accuracy": score}, parent=trial.parent)


@pytest.mark.parametrize("strategy", ["random", "bayesian", "hyperband"])
def test_the_trials_do_not_depend_on_which_one_ends_first(strategy):
    def found(slow: int) -> list[Result]:
        def run(trial: Trial) -> Result:
            time.sleep(0.05 if trial.number % 2 == slow else 0.0)
            return judged(trial)

        return search(run, strategy=strategy, parallel_trials=3)

    first, second = found(slow=1), found(slow=0)
    assert first == second
    assert [each.number for each in first] == list(range(1, len(first) + 1))


def test_as_many_trials_run_at_once_as_are_declared():
    lock, at_work, most = threading.Lock(), 0, 0

    def run(trial: Trial) -> Result:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.05)
        with lock:
            at_work -= 1
        return judged(trial)

    search(run, parallel_trials=3)
    assert most == 3


def test_a_failed_trial_is_a_result_and_the_search_continues():
    def run(trial: Trial) -> Result:
        if trial.number in (2, 3, 5):
            return Result(trial.number, trial.values, FAILED, reason="the loss is no number\nmore")
        return judged(trial)

    found = search(run)
    assert [each.status for each in found].count(FAILED) == 3
    assert len(found) == 9
    best = best_of(found, "max")
    assert best.score == max(each.score or 0 for each in found)
    tune = TuneSection.parse_obj({"ranges": {"x": [1]}})
    head, *rows = lines(found, tune, best)
    assert head.split() == ["trial", "x", "accuracy", "steps", "seconds"]
    assert "failed: the loss is no number" in rows[1]
    assert [row.split()[0] for row in rows if row.endswith("best")] == [str(best.number)]


def test_consecutive_failures_end_it_with_the_first_reason():
    def run(trial: Trial) -> Result:
        if trial.number < 3:
            return judged(trial)
        return Result(trial.number, trial.values, FAILED, reason=f"reason {trial.number}")

    with pytest.raises(
        TrainingError, match=r"3 trials, one after another, failed; the reason of trial 3 \(x 0\.\d+\):\n +reason 3"
    ):
        search(run)
    with pytest.raises(TrainingError, match="all trials failed"):
        search(lambda each: Result(each.number, each.values, FAILED, reason="no"), max_trials=2)


def test_an_error_that_is_no_result_ends_the_other_trials():
    ended = threading.Event()
    tune = TuneSection.parse_obj({"ranges": {"x": {"min": 0.0, "max": 1.0}}, "parallel_trials": 2})
    proposals = Proposals(tune)

    def run(trial: Trial) -> Result:
        if trial.number == 1:
            wait_until(searching.has_ended, "the end of the search", 30)
            ended.set()
            return judged(trial)
        raise UserCodeError("no such metric")

    searching = Search(tune, proposals, run)
    with pytest.raises(UserCodeError, match="no such metric"):
        searching.search()
    proposals.close()
    assert ended.is_set(), "the other trial was not notified of the end of the search"
