"""The best checkpoint is the model, and training ends when it improves no more: on the Estimator path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import Training, served_accuracy
from tfx_estimator.components.trainer.best.record import Record
from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# From a step on it unlearns, faster than it learned.
MODEL_FN = """
import os, signal
import tensorflow as tf

class Kill(tf.compat.v1.train.SessionRunHook):
    def __init__(self, params):
        self.params = params

    def after_run(self, context, values):
        step = context.session.run(tf.compat.v1.train.get_global_step())
        if step == self.params["kill_at"] and not os.path.exists(self.params["marker"]):
            open(self.params["marker"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def model_fn(features, labels, mode, params):
    images = tf.reshape(features["image"], [-1, 784])
    logits = tf.compat.v1.layers.dense(images, params["num_classes"], name="linear")
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(outputs)})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_global_step()
    rate = tf.where(step < params["ruin_at"], 0.01, -0.2)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(rate).minimize(loss, step)
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, -1))
    hooks = [Kill(params)] if params["kill_at"] else []
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy},
                                      training_hooks=hooks)
"""


@pytest.fixture(scope="module")
def ruined(tmp_path_factory, settings):
    """Makes settings of a model that is best at step 40 of 100; keyword arguments are entries of the trainer."""
    package = tmp_path_factory.mktemp("user")
    (package / "ruined_model.py").write_text(MODEL_FN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))

        def make(tmp_path: Path, kill_at: int = 0, **section):
            params = {"ruin_at": 40, "kill_at": kill_at, "marker": str(tmp_path / "marker")}
            return settings(
                {
                    "model": "ruined_model:model_fn",
                    "params": params,
                    "train_steps": 100,
                    "save_checkpoints_steps": 20,
                    "keep_checkpoint_max": 1,
                    **section,
                }
            )

        yield make


def steps_of(model_run) -> list[int]:
    return [each.step for each in Record.load(model_run.uri)]


def test_training_ends_where_nothing_improves_and_the_best_is_the_model_after_a_kill_as_without_one(
    tmp_path, digits, ruined
):
    """40 is the best one, 60 and 80 are not; it is killed after 60, and only the last checkpoint stays."""
    rule = {"metric": "loss", "patience": 2}
    settings = ruined(tmp_path, kill_at=70, keep_best="accuracy", early_stopping=rule)
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings)
    number = model_run.get_float_custom_property
    assert (number("restarts"), number("last_step"), number("exported_step")) == (1, 80, 40)
    record = {each.step: each.metrics["accuracy"] for each in Record.load(model_run.uri)}
    assert list(record) == [20, 40, 60, 80]
    assert record[80] < record[40] - 0.2
    assert number("eval_accuracy") == record[40] == max(record.values())
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(record[40], abs=1e-6)
    exported = model_run.get_string_custom_property("exported")
    assert exported.startswith("step 40: the best accuracy, 0.")
    assert "of 4 evaluations; the last, of step 80: 0." in exported
    told = model_run.get_string_custom_property("stopped_early")
    assert told.startswith("at step 80 of 100: loss has not improved on ")
    assert told.endswith(", of step 40, for 2 evaluations")
    assert {path.name for path in Path(model_run.uri, "best").glob("*.index")} == {"best.ckpt-40.index"}


@pytest.mark.long
def test_a_longer_training_knows_what_was_best_before(tmp_path, digits, ruined):
    training = Training(tmp_path / "Trainer", digits)
    _, model_run = training.run(ruined(tmp_path, keep_best="accuracy"))
    assert model_run.get_float_custom_property("exported_step") == 40
    assert steps_of(model_run) == [20, 40, 60, 80, 100]
    _, model_run = training.run(ruined(tmp_path, keep_best="accuracy", train_steps=120), steps=120)
    number = model_run.get_float_custom_property
    assert (number("first_step"), number("last_step"), number("exported_step")) == (100, 120, 40)
    assert steps_of(model_run) == [20, 40, 60, 80, 100, 120]


@pytest.mark.long
def test_without_keep_best_the_model_is_the_last_checkpoint(tmp_path, digits, ruined):
    rule = {"metric": "accuracy", "patience": 2}
    model, model_run = Training(tmp_path / "Trainer", digits).run(ruined(tmp_path, early_stopping=rule))
    assert model_run.get_float_custom_property("last_step") == 80
    last = Record.load(model_run.uri).evaluations[-1].metrics["accuracy"]
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(last, abs=1e-6)
    assert model_run.get_float_custom_property("eval_accuracy") == last


def test_a_metric_that_the_model_does_not_report_is_told_before_the_first_step(tmp_path, digits, ruined):
    training, settings = Training(tmp_path / "Trainer", digits), ruined(tmp_path, keep_best="auc")
    with pytest.raises(errors.UserCodeError, match="the evaluation reports no `auc`") as caught:
        training.run(settings)
    assert "one of accuracy, loss" in str(caught.value)
    assert not list(training.root.rglob("model.ckpt-*"))


@pytest.mark.long
def test_the_evaluator_of_a_cluster_tells_it_without_a_checkpoint(tmp_path, digits, ruined):
    training = Training(tmp_path / "Trainer", digits)
    distribution = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True}
    # Training would take minutes, and the first checkpoint, of step 0, is evaluated only then.
    own = {"train_steps": 100_000, "save_checkpoints_steps": 100_000}
    settings = ruined(tmp_path, early_stopping="auc", distribution={**distribution, "start_delay_secs": 600}, **own)
    with pytest.raises(errors.UserCodeError, match=r"early_stopping\.metric: the evaluation reports no `auc`"):
        training.run(settings, steps=100_000)


@pytest.mark.long
def test_the_names_are_found_under_a_strategy_of_evaluation_too(tmp_path, digits, ruined):
    settings = ruined(tmp_path, keep_best="auc", distribution={"eval": "mirrored:2"})
    with pytest.raises(errors.UserCodeError, match="the evaluation reports no `auc`") as caught:
        Training(tmp_path / "Trainer", digits).run(settings)
    assert "one of accuracy, loss" in str(caught.value)


@pytest.mark.long
def test_the_evaluator_of_a_cluster_stops_all_its_tasks_and_the_best_checkpoint_is_the_model(
    tmp_path, digits, settings
):
    """It learns at once, and then improves by less than is asked for."""
    section = {
        "train_steps": 4000,
        "save_checkpoints_steps": 50,
        "keep_best": "average_loss",
        "early_stopping": {"metric": "accuracy", "patience": 2, "min_delta": 0.2},
        "distribution": {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
    }
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings(section), steps=4000)
    number = model_run.get_float_custom_property
    assert number("last_step") < 4000
    assert number("restarts") == 0
    told = model_run.get_string_custom_property("stopped_early")
    assert told.startswith(f"at step {number('last_step'):,.0f} of 4,000: accuracy has not improved on ")
    best = min(Record.load(model_run.uri), key=lambda each: each.metrics["average_loss"])
    assert number("exported_step") == best.step
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(best.metrics["accuracy"], abs=1e-6)
    logs = Path(model_run.uri) / "logs"
    assert list(logs.glob("*.error.json")) == []
