"""The best checkpoint is the model, and training ends when it improves no more: on the Keras paths."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.components.trainer.conftest import Training, served_accuracy
from tfx_estimator.components.trainer.best.keeper import Chosen
from tfx_estimator.components.trainer.best.record import Record
from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NETWORK = """
import os, signal
import tensorflow as tf

class Kill(tf.keras.layers.Layer):
    def __init__(self, at, marker):
        super().__init__()
        self.at, self.marker, self.steps = at, marker, 0

    def call(self, inputs, training=None):
        if training:
            tf.py_function(self.count, [], [])
        return inputs

    def count(self):
        self.steps += 1
        if self.steps == self.at and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def network(num_classes, kill_at, marker):
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Flatten(), Kill(kill_at, marker), layers.Dense(num_classes)])
"""
# It counts as better to know less: so the first checkpoint is the best, and the last one is worse.
WORST = {"metric": "average_loss", "mode": "max"}


@pytest.fixture
def own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings):
    """Makes settings of a network that is killed at a step; keyword arguments are entries of the trainer."""
    (tmp_path / "killed_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(path: str, kill_at: int = 0, **section):
        values = {
            "path": path,
            "model": "killed_network:network",
            "params": {"kill_at": kill_at, "marker": str(tmp_path / "marker")},
            "train_steps": 100,
            "save_checkpoints_steps": 20,
            "keep_checkpoint_max": 1,
            "optimizer": {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"},
            "keep_best": WORST,
            "early_stopping": {**WORST, "patience": 3},
            **section,
        }
        return settings(values, path=path)

    return make


def check(model: Path, model_run, examples: str, restarts: int) -> None:
    """20 is the best one; 40, 60 and 80 are not."""
    number = model_run.get_float_custom_property
    assert (number("restarts"), number("last_step"), number("exported_step")) == (restarts, 80, 20)
    record = {each.step: each.metrics for each in Record.load(model_run.uri)}
    assert list(record) == [20, 40, 60, 80]
    assert record[20]["accuracy"] < record[80]["accuracy"] - 0.01
    assert number("eval_accuracy") == record[20]["accuracy"]
    assert served_accuracy(model, examples) == pytest.approx(record[20]["accuracy"], abs=1e-6)
    told = model_run.get_string_custom_property("stopped_early")
    assert told.startswith("at step 80 of 100: average_loss has not improved on ")
    assert {path.name for path in Path(model_run.uri, "best").glob("*.index")} == {"best.ckpt-20.index"}


@pytest.mark.long
def test_a_loop_that_was_killed_ends_where_nothing_improves_and_the_best_is_the_model(tmp_path, digits, own_network):
    settings = own_network("keras_custom_loop", kill_at=70)
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings, steps=100)
    check(model, model_run, digits["examples"][0].uri, restarts=1)


@pytest.mark.long
def test_fit_evaluates_from_inside_of_its_strategy(tmp_path, digits, own_network):
    distribution = {"train": "mirrored:2", "eval": "mirrored:2"}
    settings = own_network("keras", distribution=distribution)
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings, steps=100)
    check(model, model_run, digits["examples"][0].uri, restarts=0)


RECOVERS = """
import tensorflow as tf

class Recovers(tf.keras.layers.Layer):
    def build(self, shape):
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seen = self.add_weight("seen", shape=(), trainable=False, aggregation=first)

    def call(self, inputs, training=None):
        if training:
            self.seen.assign_add(1.0)
            return inputs
        return tf.where(self.seen < 30.0, float("nan"), inputs)

def network(num_classes):
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Flatten(), layers.Dense(num_classes), Recovers()])
"""


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored"])
def test_an_evaluation_that_is_not_a_number_ends_nothing_and_is_never_best(
    tmp_path, digits, settings, monkeypatch, strategy
):
    (tmp_path / "recovering_network.py").write_text(RECOVERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    train = {"strategy": strategy, **({"workers": 2} if strategy != "one_device" else {})}
    section = {
        "path": "keras",
        "model": "recovering_network:network",
        "save_checkpoints_steps": 20,
        "keep_best": "loss",
    }
    section.update(train_steps=100, distribution={"train": train, "throttle_secs": 1})
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings(section, path="keras"), steps=100)
    record = {each.step: each.metrics["loss"] for each in Record.load(model_run.uri)}
    assert record[100] > 0
    if strategy == "one_device":
        assert [step for step, loss in record.items() if math.isnan(loss)] == [20]
    best = min(step for step, loss in record.items() if loss == min(each for each in record.values() if each > 0))
    assert model_run.get_float_custom_property("exported_step") == best
    assert served_accuracy(model, digits["examples"][0].uri) > 0.2


@pytest.mark.unit
def test_what_would_be_exported_has_a_loss(tmp_path):
    from tfx_estimator.components.trainer.keras.deciding import Deciding

    class Kept:
        def knows(self, step):
            return True

        def choose(self, last, step):
            return Chosen(last, step, {"loss": math.nan, "accuracy": 0.1})

    with pytest.raises(errors.TrainingError, match=r"the loss of checkpoint .*model\.ckpt-100 is not a number"):
        Deciding(Kept(), lambda checkpoint: {}, str(tmp_path)).choose(str(tmp_path / "model.ckpt-100"))


USER = str(Path(__file__).parent.parent / "user")
TOLD = "the evaluation reports no `auc`"


@pytest.mark.parametrize("path", ["keras", pytest.param("keras_custom_loop", marks=pytest.mark.long)])
def test_a_metric_that_a_compiled_model_does_not_report_is_told_before_the_first_step(
    tmp_path, digits, settings, monkeypatch, path
):
    monkeypatch.syspath_prepend(USER)
    training = Training(tmp_path / "Trainer", digits)
    section = {"path": path, "model": "compiled_models:functional", "keep_best": "auc", "save_checkpoints_steps": 5}
    with pytest.raises(errors.UserCodeError, match=TOLD) as caught:
        training.run(settings(section, path=path))
    # Those of compile, which are there once something was evaluated, are among them.
    assert "one of accuracy, average_loss, loss, top2" in str(caught.value)
    assert not list(training.root.rglob("model.ckpt-*"))


@pytest.mark.long
def test_the_evaluator_of_a_cluster_tells_it_without_a_checkpoint(tmp_path, digits, settings, monkeypatch):
    monkeypatch.syspath_prepend(USER)
    section = {
        "path": "keras",
        "model": "compiled_models:functional",
        "train_steps": 1_000_000,
        "save_checkpoints_steps": 1_000_000,
        "early_stopping": "auc",
        "distribution": {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
    }
    with pytest.raises(errors.UserCodeError, match=TOLD):
        Training(tmp_path / "Trainer", digits).run(settings(section, path="keras"), steps=1_000_000)


@pytest.mark.long
def test_looking_for_the_metrics_changes_nothing_of_the_training(tmp_path, digits, settings, monkeypatch):
    monkeypatch.syspath_prepend(USER)
    section = {"path": "keras", "model": "compiled_models:softmax", "deterministic": True}
    plain = Training(tmp_path / "plain", digits).run(settings(section, path="keras"))[1]
    section["early_stopping"] = {"metric": "top2", "patience": 100}
    watched = Training(tmp_path / "watched", digits).run(settings(section, path="keras"))[1]
    for name in ("eval_loss", "eval_top2"):
        assert watched.get_float_custom_property(name) == plain.get_float_custom_property(name) > 0


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_the_evaluator_of_a_cluster_stops_all_its_tasks_and_the_best_checkpoint_is_the_model(
    tmp_path, digits, settings, path
):
    """It learns at once, and then improves by less than is asked for."""
    section = {
        "path": path,
        "train_steps": 20_000,
        "save_checkpoints_steps": 50,
        "keep_best": "average_loss",
        "early_stopping": {"metric": "accuracy", "patience": 2, "min_delta": 0.2},
        "distribution": {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
    }
    model, model_run = Training(tmp_path / "Trainer", digits).run(settings(section, path=path), steps=20_000)
    number = model_run.get_float_custom_property
    assert number("last_step") < 20_000
    assert number("restarts") == 0
    told = model_run.get_string_custom_property("stopped_early")
    assert told.startswith(f"at step {number('last_step'):,.0f} of 20,000: accuracy has not improved on ")
    best = min(Record.load(model_run.uri), key=lambda each: each.metrics["average_loss"])
    assert number("exported_step") == best.step
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(best.metrics["accuracy"], abs=1e-6)
