"""The calls of the observers' hook; and a train_op that never increments global_step is ended."""

from __future__ import annotations

import pytest

from tests.components.trainer.noting import Noting
from tests.refusals import refused
from tfx_estimator.components.trainer.estimator.hooks import (
    FitHook,
    ObserverHook,
    ObserverListener,
    StopRequest,
    UnmovedStep,
)
from tfx_estimator.components.trainer.observers import Observer, Reporter
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter, request_stop
from tfx_estimator.components.trainer.vocabularies import carry
from tfx_estimator.pipeline.base.errors import UserCodeError

MODEL_FN = """
import tensorflow as tf


def model_fn(features, labels, mode, params):
    logits = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(features["image"]), params["num_classes"])
    head = tf.estimator.MultiClassHead(params["num_classes"])
    minimize = tf.compat.v1.train.GradientDescentOptimizer(0.01).minimize
    return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=minimize)
"""


@pytest.fixture
def train(tmp_path):
    """Increments a number in each run, and the step only in every `every`-th one."""
    import tensorflow as tf

    v1 = tf.compat.v1

    def model_fn(features, labels, mode, params):
        step, runs = v1.train.get_global_step(), v1.get_variable("runs", [], tf.int64, trainable=False)
        with tf.control_dependencies([runs.assign_add(1)]):
            counts = tf.equal(runs.read_value() % params["every"], 0)
            train_op = step.assign_add(tf.cast(counts, tf.int64))
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op)

    def run(every: int, steps: int, *observers: Observer) -> int:
        config = tf.estimator.RunConfig(save_checkpoints_steps=1000, log_step_count_steps=1000)
        estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "run"), config, {"every": every})
        data, hooks = lambda: tf.data.Dataset.from_tensors(0.0).repeat(), [ObserverHook(observers)]
        listeners = [ObserverListener(observers)]
        estimator.train(data, hooks=hooks, max_steps=steps, saving_listeners=listeners)
        return int(estimator.get_variable_value("runs"))

    return run


def test_observers_are_called_around_each_step_until_one_of_them_ends_training(train, tmp_path):
    noting, progress = Noting(), str(tmp_path / "progress")
    request_stop(str(tmp_path / "stop"), 2)
    assert train(1, 9, Reporter(ProgressWriter(progress), 9), StopRequest(str(tmp_path / "stop")), noting) == 2
    called = [each[:2] for each in noting.called]
    around = [(name, step) for step in (0, 1) for name, step in (("before_step", step), ("after_step", step + 1))]
    assert [each for each in called if each[0] != "before_save"] == [("begin", 0), *around, ("end", 2)]
    assert [step for name, step in called if name == "before_save"] == [0, 2]
    reader = ProgressReader(progress)
    first, reported, last = (event for event in reader.read() if event["event"] is Event.STEP)
    assert (first["step"], first["total"]) == (0, 9)
    assert reported["loss"] == 0.0
    assert last["step"] == reader.step() == 2


def test_the_last_step_is_reported_before_its_checkpoint_is_evaluated(train, tmp_path):
    progress = ProgressWriter(str(tmp_path / "progress"))

    class Evaluation(Observer):
        """Evaluates each checkpoint, as an Estimator does before `end`."""

        def before_save(self, step: int) -> None:
            progress.write(Event.EVALUATING, batches=step)

    train(1, 5, Reporter(progress, 5), Evaluation())
    events = ProgressReader(str(tmp_path / "progress")).read()
    assert [(each["event"], each.get("step", each.get("batches"))) for each in events[-2:]] == [
        (Event.STEP, 5),
        (Event.EVALUATING, 5),
    ]


def unmoved(steps: int, **options) -> UnmovedStep:
    return UnmovedStep(steps, runs=20, **options)


def test_a_slow_global_step_trains_to_the_end_and_a_constant_one_is_ended(train):
    assert train(19, 5, unmoved(5)) == 95
    # Again, from a later step.
    assert train(19, 7, unmoved(7)) == 7 * 19
    with pytest.raises(UserCodeError, match="ran 21 times, and global_step stayed at 7: training to step 9 would"):
        train(1000, 9, unmoved(9))


def test_a_global_step_that_another_task_may_increment_gets_more_time(train):
    assert train(50, 1, unmoved(1, alone=False, seconds=1000.0)) == 50
    with pytest.raises(UserCodeError, match="ran 21 times, and global_step stayed at 1"):
        train(50, 9, unmoved(9, alone=False, seconds=0.0))


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_training_with_such_a_model_fn_ends(training, settings, importable):
    (importable / "uncounted.py").write_text(MODEL_FN)
    with pytest.raises(UserCodeError, match="ran 1,001 times, and global_step stayed at 0: training to step 60 would"):
        training.run(settings(trainer={"model": "uncounted:model_fn"}))


@pytest.mark.parametrize("other", [{"units": 3}, {"optimizer": "Adagrad"}, {"optimizer": "keras"}])
def test_only_the_model_of_the_earlier_day_goes_on(tmp_path, other):
    import tensorflow as tf

    v1 = tf.compat.v1

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(v1.layers.dense(features, params["units"]) ** 2)
        if params["optimizer"] == "keras":
            variables, optimizer = v1.trainable_variables(), tf.keras.optimizers.legacy.Adagrad()
            optimizer.iterations = v1.train.get_or_create_global_step()
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.get_updates(loss, variables)[0])
        optimizer = getattr(v1.train, f"{params['optimizer']}Optimizer")(0.01)
        train_op = optimizer.minimize(loss, v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def train(folder: str, steps: int, **params) -> None:
        estimator = tf.estimator.Estimator(model_fn, folder, params={"units": 2, "optimizer": "Ftrl"} | params)
        data = lambda: tf.data.Dataset.from_tensors([[1.0, 2.0]]).repeat()  # noqa: E731
        estimator.train(data, hooks=[FitHook(folder)], max_steps=steps)

    train(str(tmp_path / "first"), 1)
    carry(str(tmp_path / "first" / "model.ckpt-1"), str(tmp_path / "next" / "model.ckpt-0"), {}, {}, {})
    v1.train.update_checkpoint_state(str(tmp_path / "next"), str(tmp_path / "next" / "model.ckpt-0"))
    with refused(UserCodeError, "another than that of the earlier day", todo="--set trainer.warm_start=null"):
        train(str(tmp_path / "next"), 2, **other)
    train(str(tmp_path / "next"), 2)
