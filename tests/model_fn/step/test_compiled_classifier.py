"""A compiled model in our steps: Keras's own losses and updates, and refusals of what cannot be evaluated or saved."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.keras.test_drivers import _Watch
from tfx_estimator.components.trainer.keras import drivers, evaluation
from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

SECTION = TrainerSection(model="mnist_cnn", train_steps=1, global_batch_size=6)


def _model(kind=None, **options):
    tf.keras.utils.set_random_seed(1)
    image = tf.keras.Input([4], name="image")
    options = {"optimizer": tf.keras.optimizers.SGD(0.1), "loss": "sparse_categorical_crossentropy", **options}
    model = (kind or tf.keras.Model)(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    model.compile(**options)
    return model


def _wrapped(model, weight=""):
    wrapped = CompiledClassifier(model, SECTION, 3, weight)
    wrapped.compile(optimizer=model.optimizer)
    return wrapped


def _data():
    rng = np.random.default_rng(0)
    return {"image": tf.constant(rng.normal(size=[6, 4]), tf.float32)}, tf.constant([0, 1, 2, 0, 1, 2], tf.int64)


@pytest.mark.parametrize("weight", ["", "importance"])
@pytest.mark.parametrize("reduction", ["auto", "sum_over_batch_size", "sum", "none"])
def test_a_step_equals_keras_for_any_reduction_and_evaluates_each_example(reduction, weight):
    def loss():
        return tf.keras.losses.SparseCategoricalCrossentropy(reduction=reduction)

    own, keras = _model(loss=loss()), _model(loss=loss())
    features, labels = _data()
    per_example = tf.keras.losses.sparse_categorical_crossentropy(labels, own(features["image"])).numpy()
    weights = [tf.constant([0.5, 1, 2, 0, 1, 3])] if weight else []
    if weights:
        features["importance"] = weights[0][:, tf.newaxis]
        per_example *= weights[0].numpy()
    wrapped = _wrapped(own, weight)
    evaluated = wrapped.test_step((features, labels))
    assert float(evaluated["loss"]) == pytest.approx(per_example.sum(), rel=1e-5)
    assert float(evaluated["examples"]) == 6
    reported = float(wrapped.train_step((features, labels))["loss"])
    assert reported == pytest.approx(per_example.sum() if reduction == "sum" else per_example.mean(), rel=1e-5)
    keras.train_step((features["image"], labels, *weights))
    for one, other in zip(own.get_weights(), keras.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("loss", ["vector", "one", "number"])
def test_the_numbers_that_a_train_step_returns_are_reported(loss):
    losses = {"vector": tf.ones([3]), "one": tf.ones([1]), "number": 1.0}

    class Own(tf.keras.Model):
        def train_step(self, data):
            more = {"each": tf.ones([2]), "by_name": {"mae": tf.constant(1.0)}, "word": tf.constant("a")}
            return {"loss": losses[loss], "count": tf.constant(2), **more}

    wrapped = _wrapped(_model(Own))
    if loss == "vector":
        with pytest.raises(UserCodeError, match=r"returns a loss of the shape \(3,\)") as caught:
            wrapped.train_step(_data())
        assert "return its mean" in str(caught.value)
        return
    for step in (wrapped.train_step, tf.function(wrapped.train_step)):
        assert {name: float(each) for name, each in step(_data()).items()} == {"loss": 1, "count": 2}


def _with_steps():
    """A class like in Keras's guide: its steps keep a mean loss, and its evaluation differs."""

    class Own(tf.keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seen = tf.keras.metrics.Mean(name="loss")
            self.share = tf.keras.metrics.Mean(name="share")

        @property
        def metrics(self):
            return [self.seen, self.share]

        def train_step(self, data):
            images, labels = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(images, labels, self(images, training=True))
            self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
            self.seen.update_state(loss)
            return {"loss": self.seen.result()}

        def test_step(self, data):
            _, labels = data
            self.share.update_state(labels == 2)
            return {"share": self.share.result(), "each": tf.ones([2])}

    return Own


@pytest.mark.parametrize("driver", ["fit", "loop"])
def test_a_train_steps_mean_loss_is_reported_for_each_step(driver):
    losses = []
    for kind in (_with_steps(), None):
        model = _model(kind)
        wrapped, watch = CompiledClassifier(model, SECTION, 3), _Watch()
        wrapped.compile(optimizer=model.optimizer, steps_per_execution=4)
        batches = tf.data.Dataset.from_tensors(_data()).repeat()
        getattr(drivers, driver)(wrapped, batches, watch, tf.distribute.get_strategy())
        losses.append([each["loss"] for each in watch.values])
    assert len(losses[0]) == 3
    assert losses[0][0] > losses[0][-1]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_labels_may_be_a_column_as_tfx_examples_have_them():
    features, labels = _data()
    found = []
    for each in (labels, labels[:, None]):
        wrapped = _wrapped(_model())
        found.append([wrapped.test_step((features, each)), wrapped.train_step((features, each))])
    for one, other in zip(*found):
        assert {name: float(value) for name, value in one.items()} == {
            name: pytest.approx(float(value)) for name, value in other.items()
        }
    assert 0 <= float(found[1][1]["accuracy"]) <= 1


def _evaluate(monkeypatch, model, batches):
    """Returns the report of `Evaluation` for a checkpoint."""
    monkeypatch.setattr(evaluation, "restore_weights", lambda *_: None)
    monkeypatch.setattr(evaluation, "Curves", lambda _: types.SimpleNamespace(write=lambda *_: 0, flush=lambda: 0))
    reader = types.SimpleNamespace(input_fn=lambda mode, context: batches)
    progress = types.SimpleNamespace(write=lambda *_, **__: 0)
    maker = types.SimpleNamespace(make=lambda: _wrapped(model))
    return evaluation.Evaluation(maker, reader, None, None, "", progress).evaluate("model.ckpt-1")


def _batches():
    """Of another size each."""
    features, labels = _data()
    one = features["image"]
    sizes = [slice(0, 4), slice(4, 6)]
    return tf.data.Dataset.from_generator(
        lambda: (({"image": one[each]}, labels[each]) for each in sizes),
        output_signature=({"image": tf.TensorSpec([None, 4])}, tf.TensorSpec([None], tf.int64)),
    )


def test_a_users_test_step_is_called_and_its_metrics_are_read_after_the_last_batch(monkeypatch):
    model = _model(_with_steps(), metrics=["mae"])
    found = _evaluate(monkeypatch, model, _batches())
    assert sorted(found) == ["accuracy", "average_loss", "loss", "share"]
    # Twice: an evaluation resets its counts.
    again = _evaluate(monkeypatch, model, _batches())
    assert found["share"] == again["share"] == pytest.approx(2 / 6)
    assert found["loss"] == found["average_loss"]


def test_an_added_metric_is_evaluated_and_one_of_training_only_is_not(monkeypatch):
    class Own(_with_steps()):
        test_step = tf.keras.Model.test_step

    image = tf.keras.Input([4], name="image")
    model = tf.keras.Model(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    model.add_metric(tf.reduce_mean(image), name="mean_input", aggregation="mean")
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["mae"])
    found = _evaluate(monkeypatch, model, _batches())
    assert sorted(found) == ["accuracy", "average_loss", "loss", "mae", "mean_input"]
    only = _evaluate(monkeypatch, _model(Own), _batches())
    assert sorted(only) == ["accuracy", "average_loss", "loss"]
    assert only["loss"] == only["average_loss"] > 0


def test_a_users_compute_metrics_decides_on_the_evaluated_metrics(monkeypatch):
    class Own(tf.keras.Model):
        def compute_metrics(self, x, y, y_pred, sample_weight):
            found = super().compute_metrics(x, y, y_pred, sample_weight)
            return {**found, "doubled": 2 * found["top2"], "inputs": tf.cast(tf.shape(x)[0], tf.float32)}

    def compiled(kind=None):
        return _model(kind, metrics=[tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")])

    plain = _evaluate(monkeypatch, compiled(), _batches())
    found = _evaluate(monkeypatch, compiled(Own), _batches())
    # The last batch has 2 examples.
    more = {"doubled": pytest.approx(2 * plain["top2"]), "inputs": 2}
    assert found == {**{name: pytest.approx(value) for name, value in plain.items()}, **more}


@pytest.mark.parametrize("kind", ["a class of its own", "functional", "a dict"])
def test_several_outputs_are_served_by_their_names(kind):
    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.digit, self.parity = tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)

        def call(self, image):
            return self.digit(image), self.parity(image)

    features, _ = _data()
    if kind == "a class of its own":
        model, names = Own(), ["output_1", "output_2"]
    else:
        image = tf.keras.Input([4], name="image")
        digit = tf.keras.layers.Dense(3, name="digit")(image)
        parity = tf.keras.layers.Dense(2, name="odd")(image)
        named = kind == "a dict"
        model = tf.keras.Model(image, {"parity": parity, "digit": digit} if named else [digit, parity])
        names = ["digit", "parity"] if named else ["digit", "odd"]
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model(features["image"])
    wrapped = _wrapped(model)
    answers = tf.function(lambda: wrapped.answers(features, "abc"))()
    assert [(name, each.shape) for name, each in sorted(answers.items())] == [(names[0], (6, 3)), (names[1], (6, 2))]
