"""Trials: keras-tuner's oracles propose the same trials for the same results; and the stored results."""

from __future__ import annotations

import json
import math

import keras_tuner
import pytest

from tfx_estimator.components.tuner.trials import (
    COMPLETED,
    FAILED,
    Proposals,
    Result,
    Trial,
    best_of,
    first_values,
    forget,
    make_space,
)
from tfx_estimator.pipeline.config.tune import TuneSection

RATE = "trainer.optimizer.learning_rate"
RANGES = {
    RATE: {"min": 1e-4, "max": 0.1, "sampling": "log"},
    "trainer.global_batch_size": {"min": 16, "max": 64, "step": 16},
    "trainer.optimizer.name": ["adam", "sgd"],
    "trainer.deterministic": [True, False],
}


def section(**values) -> TuneSection:
    return TuneSection.parse_obj({"ranges": RANGES, "max_trials": 6, **values})


def score(trial: Trial) -> float:
    return trial.values[RATE] * (2 if trial.values["trainer.optimizer.name"] == "adam" else 1)


def drive(tune: TuneSection, steps: int = 900, fails: tuple[int, ...] = (), score=score) -> list[Trial]:
    proposals, found = Proposals(tune, steps), []
    while trial := proposals.next():
        found.append(trial)
        failed = trial.number in fails
        result = Result(trial.number, trial.values, FAILED if failed else COMPLETED, None if failed else score(trial))
        proposals.record(result)
    # Also when asked again.
    assert proposals.next() is None
    assert proposals.ended
    proposals.close()
    return found


def test_each_range_becomes_keras_tuners_type_for_it():
    space = {each.name: each for each in make_space(section()).space}
    assert type(space[RATE]).__name__ == "Float"
    assert space[RATE].sampling == "log"
    assert list(space["trainer.global_batch_size"].values) == [16, 32, 48, 64]
    assert space["trainer.optimizer.name"].values == ["adam", "sgd"]
    assert type(space["trainer.deterministic"]).__name__ == "Boolean"
    one = TuneSection.parse_obj({"ranges": {"a": [3], "b": [1, 2.5]}})
    assert [type(each).__name__ for each in make_space(one).space] == ["Fixed", "Choice"]


def test_choices_that_keras_tuner_does_not_support_are_drawn_as_declared():
    ranges = {
        "trainer.optimizer.clip_norm": [None, 1.0],
        "trainer.params.width": [8, "wide"],
        "trainer.augment": [[], ["random_flip"], [{"random_crop": {"padding": 2}}]],
        "trainer.seed": [None],
    }
    tune = TuneSection.parse_obj({"ranges": ranges, "max_trials": 20})
    assert first_values(tune)["values"] == {name: values[0] for name, values in ranges.items()}
    for strategy, count in (("random", 20), ("bayesian", 14)):
        varied = tune.copy(update={"strategy": strategy, "max_trials": count})
        found = drive(varied, score=lambda trial: 1 / trial.number)
        for name, values in ranges.items():
            drawn = [trial.values[name] for trial in found]
            assert all(value in values for value in drawn)
            # Random search draws each combination once.
            assert strategy != "random" or all(drawn.count(value) == 12 / len(values) for value in values)
        assert len(found) == (12 if strategy == "random" else count)
        # In the form that the Trainer and readers of `fn_args.hyperparameters` get.
        assert all(json.loads(json.dumps(trial.config))["values"] == trial.values for trial in found)
        space = keras_tuner.HyperParameters.from_config(found[0].config)
        assert space.get("trainer.augment") == found[0].values["trainer.augment"]


@pytest.mark.parametrize(
    ("range_", "values"),
    [
        ({"min": 0, "max": 0.3, "step": 0.1}, [0.0, 0.1, 0.2, 0.3]),
        ({"min": 0.0, "max": 0.25, "step": 0.1}, [0.0, 0.1, 0.2]),
        ({"min": 1e-3, "max": 3e-3, "step": 1e-3}, [0.001, 0.002, 0.003]),
    ],
)
def test_every_step_of_a_fraction_is_drawn_and_both_ends(range_, values):
    tune = TuneSection.parse_obj({"ranges": {RATE: range_}, "max_trials": 20})
    assert sorted(trial.values[RATE] for trial in drive(tune, score=lambda trial: 0.5)) == values


def test_no_step_of_a_logarithm_leads_past_the_end():
    # 1e-5 * 10**8 is 1000.0000000000001, which the declaration may refuse.
    log = {"min": 1e-5, "max": 1000, "step": 10, "sampling": "log"}
    tune = TuneSection.parse_obj({"ranges": {RATE: log}, "max_trials": 20})
    found = [trial.values[RATE] for trial in drive(tune, score=lambda trial: 1 / trial.number)]
    assert len(found) == 9
    assert max(found) == 1000


@pytest.mark.parametrize("strategy", ["random", "bayesian", "hyperband"])
def test_the_same_seed_proposes_the_same_within_the_ranges(strategy):
    once, again = (drive(section(strategy=strategy, max_trials=13)) for _ in range(2))
    assert once == again
    assert [trial.number for trial in once] == list(range(1, 14))
    for trial in once:
        assert 1e-4 <= trial.values[RATE] <= 0.1
        assert trial.values["trainer.global_batch_size"] in (16, 32, 48, 64)
        assert type(trial.values["trainer.deterministic"]) is bool
        assert trial.config["values"][RATE] == trial.values[RATE]
    other = drive(section(strategy=strategy, max_trials=1, seed=2))
    assert other[0].values != once[0].values


def test_a_larger_search_begins_with_the_same_trials():
    assert [each.values for each in drive(section())] == [each.values for each in drive(section(max_trials=9))[:6]]


def test_there_are_no_more_trials_than_combinations():
    tune = TuneSection.parse_obj({"ranges": {"a": [*range(12)], "b": [True, False], RATE: [0.1]}, "max_trials": 30})
    assert len({tuple(trial.values.items()) for trial in drive(tune, score=lambda trial: 0.5)}) == 24


def test_bayesian_trials_follow_the_results():
    tune = TuneSection.parse_obj({"ranges": {RATE: RANGES[RATE]}, "strategy": "bayesian", "max_trials": 6})
    found = [trial.values[RATE] for trial in drive(tune, score=lambda trial: trial.values[RATE])]
    # After 3 random trials they follow the objective.
    assert max(found[3:]) > 0.9 * 0.1 > max(found[:3])


def test_the_best_trials_of_hyperband_continue_from_their_checkpoints():
    found = drive(section(strategy="hyperband", max_trials=None))
    steps = [trial.steps for trial in found]
    # Nine trials of 100 steps; three continue to 300 and one to 900.
    assert steps[:13] == [100] * 9 + [300] * 3 + [900]
    by_number = {trial.number: trial for trial in found}
    best = sorted(found[:9], key=score, reverse=True)[:3]
    assert [trial.parent for trial in found[9:12]] == [trial.number for trial in best]
    for trial in found:
        if trial.parent:
            assert trial.values == by_number[trial.parent].values
            assert trial.steps == 3 * by_number[trial.parent].steps
    assert {trial.steps for trial in found} == {100, 300, 900}
    assert len(found) == 23


def test_a_failed_trial_is_not_continued():
    found = drive(section(strategy="hyperband", max_trials=None), fails=(1, 2))
    assert not {1, 2} & {trial.parent for trial in found}


def test_a_result_comes_back_as_it_was_saved(tmp_path):
    assert Result.load(str(tmp_path)) is None
    result = Result(2, {"a": 0.1, "b": "x"}, COMPLETED, 0.9, {"accuracy": 0.9}, 60, 1.5, parent=1)
    result.save(str(tmp_path))
    assert Result.load(str(tmp_path)) == result
    forget(str(tmp_path))
    forget(str(tmp_path))
    assert Result.load(str(tmp_path)) is None
    # JSON has no NaN; the loaded result can be stored again.
    Result(1, {}, COMPLETED, 0.9, {"loss": math.nan}).save(str(tmp_path))
    again = Result.load(str(tmp_path))
    assert math.isnan(again.metrics["loss"])
    assert again.to_dict()["metrics"] == {"loss": None}


def test_values_that_differ_in_the_last_bits_have_the_same_result():
    result = Result(1, {"a": 0.1, "b": "x"}, COMPLETED, 0.9)
    assert result.is_of(Trial(1, {"a": 0.1 + 1e-12, "b": "x"}))
    assert not result.is_of(Trial(1, {"a": 0.2, "b": "x"}))
    assert not result.is_of(Trial(1, {"a": 0.1, "b": "y"}))
    assert not result.is_of(Trial(1, {"a": 0.1}))
    assert not result.is_of(Trial(1, {"a": 0.1, "b": "x"}, parent=1))


def test_the_best_is_the_first_of_equal_ones():
    found = [Result(1, {}, FAILED), Result(2, {}, COMPLETED, 0.5), Result(3, {}, COMPLETED, 0.5)]
    for better in ("max", "min"):
        assert best_of(found, better).number == 2
    assert best_of(found[:1], "max") is None
