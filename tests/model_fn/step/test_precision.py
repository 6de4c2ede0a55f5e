"""Computing in bfloat16 and float16: float32 variables, loss and outputs, and the scale of the loss in float16."""

from __future__ import annotations

import contextlib
import math
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.model_fn.networks import mnist_cnn
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.precision import LossScale, require_declared, use
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection


def _section(**values):
    return TrainerSection(model="mnist_cnn", train_steps=10, global_batch_size=8, **values)


def _batch(size=8, side=28, channels=1):
    draw = np.random.default_rng(0)
    images = draw.standard_normal((size, side, side, channels)).astype("float32")
    return {"image": tf.constant(images)}, tf.constant(draw.integers(0, 10, size))


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_only_the_layers_in_between_compute_in_it(precision):
    use(precision)
    features, labels = _batch()
    model = KerasClassifier(mnist_cnn(10), _section(precision=precision))
    outputs = model.answers(features, [])
    assert model.network.layers[0](features["image"]).dtype.name == precision.removeprefix("mixed_")
    assert {each.dtype for each in model.weights} == {tf.float32}
    assert outputs["logits"].dtype == outputs["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(tf.reduce_sum(outputs["probabilities"], -1), 1.0, atol=1e-6)
    assert model.test_step((features, labels))["loss"].dtype == tf.float64


def test_float16_is_for_one_copy_of_the_weights_too():
    """Keras refuses its own policy there."""
    strategy = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"], "/cpu:0")
    features, _ = _batch()
    with strategy.scope():
        use("mixed_float16")
        first = mnist_cnn(10).layers[0]
        assert first(features["image"]).dtype == tf.float16
        again = type(first).from_config(first.get_config())
    assert again.compute_dtype == "float16"
    assert {each.dtype for each in first.weights} == {tf.float32}


def _tiny(num_classes):
    """float16 is emulated on a CPU."""
    layers = [
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(8, activation="relu", name="dense"),
        tf.keras.layers.Dense(num_classes, dtype="float32", name="logits"),
    ]
    return tf.keras.Sequential(layers)


def _trained(scale, steps=1, **values):
    use("mixed_float16")
    tf.keras.utils.set_random_seed(1)
    section = _section(precision="mixed_float16", optimizer=Optimizer(name="adam", schedule="constant"), **values)
    model = KerasClassifier(_tiny(10), section)
    model(_batch()[0])
    model.compile(DeclaredOptimizer(section.optimizer, 10, loss_scale=scale))
    model.optimizer._create_all_weights(model.trainable_variables)
    before = [each.numpy() for each in (*model.weights, *model.optimizer.weights[1:])]
    step = tf.function(model.train_step)
    for _ in range(steps):
        values = step(_batch())
    after = [each.numpy() for each in (*model.weights, *model.optimizer.weights[1:])]
    return before, after, model, values


@pytest.mark.parametrize("parts", [1, 3])
def test_a_step_whose_gradients_overflow_is_skipped_and_halves_the_scale(parts):
    scale = LossScale(2.0**40)
    before, after, model, values = _trained(scale, gradient_accumulation=parts)
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)
    assert float(scale.value) == 2.0**39
    assert int(scale.skipped) == int(values["skipped_steps"]) == 1
    assert int(model.optimizer.iterations) == 1
    assert math.isfinite(float(values["loss"]))


def test_the_scale_falls_until_training_continues_and_is_in_the_checkpoint(tmp_path):
    scale = LossScale(2.0**40)
    before, after, model, _ = _trained(scale, steps=40)
    skipped = int(scale.skipped)
    assert 5 < skipped < 35
    assert float(scale.value) == 2.0 ** (40 - skipped)
    assert 0 < int(scale.good_steps) <= 40 - skipped
    assert any(not np.array_equal(one, other) for one, other in zip(before, after))
    path = tf.train.Checkpoint(optimizer=model.optimizer).write(str(tmp_path / "kept"))
    other = LossScale()
    restored = DeclaredOptimizer(Optimizer(name="adam"), 10, loss_scale=other)
    tf.train.Checkpoint(optimizer=restored).restore(path)
    assert (float(other.value), int(other.skipped)) == (float(scale.value), skipped)


def _estimator(network, folder, precision):
    params = {"num_classes": 10, "train_steps": 30, "global_batch_size": 8, "seed": 1, "precision": precision}
    params["optimizer"] = Optimizer().dict()
    return tf.estimator.Estimator(make_model_fn(network), str(folder), params=params)


def _input_fn():
    return tf.data.Dataset.from_tensors(_batch()).repeat()


def test_an_estimator_skips_as_well(tmp_path, monkeypatch):
    from tfx_estimator.model_fn.step import precision

    monkeypatch.setattr(precision.LossScale.__init__, "__defaults__", (2.0**40,))
    estimator = _estimator(_tiny, tmp_path, "mixed_float16")

    def value(name):
        (found,) = (each for each in estimator.get_variable_names() if f"/{each}".endswith(f"/{name}"))
        return estimator.get_variable_value(found)

    estimator.train(_input_fn, steps=1)
    first = value("logits/kernel")
    assert value("loss_scale") == 2.0**39
    estimator.train(_input_fn, steps=1)
    np.testing.assert_array_equal(first, value("logits/kernel"))
    estimator.train(_input_fn, steps=28)
    skipped = value("skipped_steps")
    assert 5 < skipped < 30
    assert value("loss_scale") == 2.0 ** (40 - skipped)
    assert value("global_step") == 30
    assert np.any(first != value("logits/kernel"))


def _sets(policy):
    """A network function like in Keras's guide."""

    def network(num_classes):
        tf.keras.mixed_precision.set_global_policy(policy)
        return _tiny(num_classes)

    return network


@pytest.mark.parametrize(
    ("declared", "policy", "todo"),
    [
        ("float32", "mixed_float16", "set trainer.precision: mixed_float16,"),
        ("mixed_bfloat16", "mixed_float16", "set trainer.precision: mixed_float16,"),
        ("mixed_float16", "float32", "set trainer.precision: float32,"),
        ("mixed_float16", "mixed_float16", ""),
        ("float32", "float64", ""),
    ],
)
def test_a_precision_set_by_a_network_function_must_be_declared(declared, policy, todo):
    use(declared)
    network = _sets(policy)(10)
    refused = pytest.raises(UserCodeError, match=f"sets Keras's global policy to {policy}, and .* is {declared}")
    with refused if todo else contextlib.nullcontext() as caught:
        require_declared(declared, network)
    assert not todo or todo in str(caught.value)


@pytest.mark.parametrize("network", [_tiny, _sets("mixed_bfloat16")], ids=["declared", "set_as_declared"])
def test_an_estimator_evaluates_and_serves_in_float32(tmp_path, network):
    def found(precision, network):
        """Returns the loss and the served outputs of the same checkpoint."""
        estimator = _estimator(network, tmp_path, precision)
        if precision != "float32":
            estimator.train(_input_fn, steps=1)
        served = next(estimator.predict(_input_fn, yield_single_examples=False))["logits"]
        return estimator.evaluate(_input_fn, steps=1)["average_loss"], served

    (loss, served), (expected, logits) = found("mixed_bfloat16", network), found("float32", _tiny)
    assert loss == expected
    np.testing.assert_array_equal(served, logits)


@pytest.mark.parametrize("network", [_tiny, _sets("mixed_bfloat16")], ids=["declared", "set_as_declared"])
def test_a_keras_model_that_is_not_trained_computes_in_float32(monkeypatch, network):
    monkeypatch.setitem(sys.modules, "own_precision", types.SimpleNamespace(network=network, tiny=_tiny))
    features, labels = _batch()

    def make(precision, name, trains):
        section = TrainerSection(model=f"own_precision:{name}", train_steps=1, path="keras", precision=precision)
        return ModelMaker(section, 10, {"image": tf.io.FixedLenFeature([28, 28, 1], tf.float32)}, trains).make()

    trained = make("mixed_bfloat16", "network", trains=True)
    evaluated = make("mixed_bfloat16", "network", trains=False)
    # Regardless of layers created in between.
    again = make("mixed_bfloat16", "network", trains=True)
    tf.keras.mixed_precision.set_global_policy("float32")
    plain = make("float32", "tiny", trains=True)
    for each in (trained, evaluated, again):
        each.set_weights(plain.get_weights())
    np.testing.assert_array_equal(evaluated(features), plain(features))
    assert float(evaluated.test_step((features, labels))["loss"]) == float(plain.test_step((features, labels))["loss"])
    np.testing.assert_array_equal(trained(features), again(features))
    assert np.abs(trained(features) - plain(features)).max() > 1e-4


def test_a_compiled_models_own_precision_is_scaled_once_and_by_keras(tmp_path):
    """A compiled model sets its precision by the policy in its function."""
    own = _sets("mixed_float16")(10)
    features, labels = _batch()
    own(features["image"])
    own.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model = CompiledClassifier(own, _section(), 10)
    model.compile(optimizer=own.optimizer)
    assert isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
    assert not isinstance(model.optimizer.inner_optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
    before = own.get_weights()
    assert math.isfinite(float(model.train_step((features, labels))["loss"]))
    assert np.abs(own.get_weights()[0] - before[0]).max() > 0
    # Only its own layers cast the inputs.
    assert model.compute_dtype == "float32"
    network = KerasClassifier(_tiny(10), _section())
    network.compile(DeclaredOptimizer(Optimizer(name="sgd"), 10))
    assert not isinstance(network.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
