"""Which evaluation is the best, and when training is over."""

from __future__ import annotations

import math
import random

import pytest

from tfx_estimator.components.trainer.best.decision import Evaluation, Record, judge, ranked
from tfx_estimator.pipeline.config.best import EarlyStopping, KeepBest

NAN, INF = math.nan, math.inf


def evaluations(*values: float, metric: str = "loss") -> list[Evaluation]:
    return [Evaluation(10 * (number + 1), {metric: value}) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "mode", "steps"),
    [
        ((3, 1, 2), "min", [20, 30, 10]),
        ((3, 1, 2), "max", [10, 30, 20]),
        # Ties: the earlier step.
        ((1, 2, 1), "min", [10, 30, 20]),
        ((1, 2, 2), "max", [20, 30, 10]),
        # NaN and infinity are never best.
        ((NAN, 2, INF, -INF, 1), "min", [50, 20]),
        ((NAN, 2, INF, -INF, 1), "max", [20, 50]),
        ((NAN,), "min", []),
        ((), "min", []),
    ],
)
def test_the_best_comes_first(values, mode, steps):
    found = ranked(evaluations(*values), KeepBest(metric="loss", mode=mode))
    assert [each.step for each in found] == steps


# The user's model_fn has only `loss`.
@pytest.mark.parametrize("name", ["average_loss", "loss"])
@pytest.mark.parametrize(
    ("losses", "steps"),
    [((0.35, 0.2, 0.01), [30, 20, 10]), ((0.2, NAN, 0.2), [10, 30, 20]), ((INF, 0.5, 0.5), [20, 30, 10])],
)
def test_ties_are_sorted_by_lower_loss_and_then_by_earlier_step(losses, steps, name):
    found = [Evaluation(10 * number, {"accuracy": 1.0, name: loss}) for number, loss in enumerate(losses, 1)]
    better = Evaluation(40, {"accuracy": 0.9, name: 0.0})
    assert [each.step for each in ranked([*found, better], KeepBest(metric="accuracy"))] == [*steps, 40]


def test_an_evaluation_without_the_metric_is_never_best():
    assert ranked(evaluations(1, 2), KeepBest(metric="accuracy")) == []


@pytest.mark.parametrize(
    ("values", "options", "stop", "best", "waited"),
    [
        ((5, 4, 3, 2), {"patience": 1}, False, 40, 0),
        ((5, 4, 4), {"patience": 1}, True, 20, 1),
        ((5, 4, 6, 3), {"patience": 2}, False, 40, 0),
        ((5, 4, 6, 7), {"patience": 2}, True, 20, 2),
        # A later evaluation does not revoke the decision.
        ((5, 4, 6, 7, 1), {"patience": 2}, True, 20, 2),
        # A change of min_delta itself is no improvement.
        ((4, 3.5, 3), {"patience": 2, "min_delta": 0.5}, False, 30, 0),
        ((4, 3.5, 3.5), {"patience": 2, "min_delta": 0.5}, True, 10, 2),
        ((1, 2, 3), {"patience": 1, "mode": "max"}, False, 30, 0),
        ((1, 2, 2), {"patience": 1, "mode": "max"}, True, 20, 1),
        ((NAN, NAN), {"patience": 2}, True, None, 2),
        ((NAN, 3, NAN), {"patience": 2}, False, 20, 1),
        # Evaluations before step 30 do not count.
        ((1, 1, 5, 4), {"patience": 1, "min_steps": 30}, False, 40, 0),
        ((1, 1, 5, 5), {"patience": 1, "min_steps": 30}, True, 30, 1),
        ((), {"patience": 1}, False, None, 0),
    ],
)
def test_training_is_over_after_patience_evaluations_without_an_improvement(values, options, stop, best, waited):
    verdict = judge(evaluations(*values), EarlyStopping(metric="loss", **options))
    assert (verdict.stop, verdict.best and verdict.best.step, verdict.waited) == (stop, best, waited)


def test_it_agrees_with_keras(monkeypatch):
    """Keras's own callback, on 300 random courses of a metric."""
    from tfx_estimator.pipeline.base.stack import keras2

    callbacks = keras2.internal("callbacks")

    class Model:
        stop_training = False

    rng = random.Random(7)
    stopped = 0
    for _ in range(300):
        mode, patience = rng.choice(["min", "max"]), rng.randint(1, 4)
        delta, start = rng.choice([0.0, 0.1, 0.25]), rng.randint(0, 3)
        values = [round(rng.gauss(0, 1), 1) for _ in range(rng.randint(1, 12))]
        keras = callbacks.EarlyStopping("loss", delta, patience, mode=mode, start_from_epoch=start)
        keras.set_model(Model())
        keras.on_train_begin()
        ended = None
        for epoch, value in enumerate(values):
            keras.on_epoch_end(epoch, {"loss": value})
            if keras.model.stop_training:
                ended = epoch
                break
        section = EarlyStopping(
            metric="loss", mode=mode, patience=patience, min_delta=delta, min_steps=10 * (start + 1)
        )
        verdicts = [judge(evaluations(*values[: n + 1]), section).stop for n in range(len(values))]
        assert (verdicts.index(True) if any(verdicts) else None) == ended, (values, section)
        stopped += ended is not None
    assert 50 < stopped < 250


def test_a_record_is_restored_and_drops_the_steps_that_a_restart_repeats(tmp_path):
    record = Record().add(10, {"loss": 2.0}).add(20, {"loss": NAN, "accuracy": 0.5}).add(30, {"loss": 1.0})
    record.save(str(tmp_path))
    loaded = Record.load(str(tmp_path))
    assert [each.step for each in loaded] == [10, 20, 30]
    assert math.isnan(loaded.evaluations[1].metrics["loss"])
    assert loaded.evaluations[2] == record.evaluations[2]
    assert loaded.has(30)
    assert not loaded.has(25)
    again = loaded.add(20, {"loss": 1.5})
    assert [(each.step, each.metrics["loss"]) for each in again] == [(10, 2.0), (20, 1.5)]
    assert not list(tmp_path.glob("*.tmp"))
    assert len(Record.load(str(tmp_path / "none"))) == 0
