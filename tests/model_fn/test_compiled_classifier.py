"""A compiled model in our steps: Keras's own losses and updates, and what could not be evaluated or kept is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit

SECTION = TrainerSection(model="mnist_cnn", train_steps=1, global_batch_size=6)


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _model(tf, kind=None, **options):
    tf.keras.utils.set_random_seed(1)
    image = tf.keras.Input([4], name="image")
    options = {"optimizer": tf.keras.optimizers.SGD(0.1), "loss": "sparse_categorical_crossentropy", **options}
    model = (kind or tf.keras.Model)(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    model.compile(**options)
    return model


def _wrapped(tf, model):
    from tfx_estimator.model_fn.compiled_classifier import CompiledClassifier

    wrapped = CompiledClassifier(model, SECTION, 3)
    wrapped.compile(optimizer=model.optimizer)
    return wrapped


def _data(tf):
    rng = np.random.default_rng(0)
    return {"image": tf.constant(rng.normal(size=[6, 4]), tf.float32)}, tf.constant([0, 1, 2, 0, 1, 2], tf.int64)


@pytest.mark.parametrize("reduction", ["auto", "sum_over_batch_size", "sum", "none"])
def test_a_step_is_keras_own_whatever_the_losss_reduction_and_its_evaluation_is_of_each_example(tf, reduction):
    def loss():
        return tf.keras.losses.SparseCategoricalCrossentropy(reduction=reduction)

    own, keras = _model(tf, loss=loss()), _model(tf, loss=loss())
    features, labels = _data(tf)
    per_example = tf.keras.losses.sparse_categorical_crossentropy(labels, own(features["image"])).numpy()
    wrapped = _wrapped(tf, own)
    evaluated = wrapped.test_step((features, labels))
    assert float(evaluated["loss"]) == pytest.approx(per_example.sum(), rel=1e-5)
    assert float(evaluated["examples"]) == 6
    reported = float(wrapped.train_step((features, labels))["loss"])
    assert reported == pytest.approx(per_example.sum() if reduction == "sum" else per_example.mean(), rel=1e-5)
    keras.train_step((features["image"], labels))
    for one, other in zip(own.get_weights(), keras.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_the_loss_of_an_optimizer_of_mixed_precision_is_scaled(tf):
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    model = _model(tf, optimizer=optimizer)
    plain = _model(tf)
    scaled, before = [], optimizer.get_scaled_loss
    optimizer.get_scaled_loss = lambda loss: scaled.append(1) or before(loss)
    data = _data(tf)
    _wrapped(tf, model).train_step(data)
    _wrapped(tf, plain).train_step(data)
    assert scaled
    np.testing.assert_allclose(model.get_weights()[0], plain.get_weights()[0], atol=1e-6)


def test_a_train_step_that_returns_no_loss_is_told(tf):
    class Silent(tf.keras.Model):
        def train_step(self, data):
            return {"mae": tf.constant(1.0)}

    with pytest.raises(UserCodeError, match="returns mae, and no loss"):
        _wrapped(tf, _model(tf, Silent)).train_step(_data(tf))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": None}, "compiled without a loss"),
        ({"loss": "categorical_crossentropy"}, "of one-hot labels"),
        ({"optimizer": "ema"}, "use_ema"),
        ({"precision": "mixed_bfloat16"}, "brings a precision of its own"),
        ({}, ""),
    ],
)
def test_what_could_not_be_evaluated_or_kept_is_refused(tf, options, told):
    from tfx_estimator.model_fn.compiled_checks import check_compiled
    from tfx_estimator.pipeline.config.distribution import Distribution

    if options.get("optimizer"):
        options = {"optimizer": tf.keras.optimizers.SGD(0.1, use_ema=True)}
    precision = options.get("precision", "float32")
    own = {name: value for name, value in options.items() if name != "precision"}
    arguments = _model(tf, **own), "nets:mine", Distribution(), precision
    if not told:
        check_compiled(*arguments)
        return
    with pytest.raises(UserCodeError, match=told):
        check_compiled(*arguments)
