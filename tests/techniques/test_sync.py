"""`sync_every`: the workers' averaged weights, and the accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.conftest import Training
from tests.techniques import wire
from tfx_estimator.model_fn.optim.averaging import Averaging
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.pipeline.config.optimizer import Optimizer

WORKERS = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}


def _weights(outcome):
    return np.frombuffer(bytes.fromhex(outcome["weights"]), np.float32)


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_workers_differ_between_two_averagings_and_are_equal_after_each(two_workers):
    first, second = two_workers["sync 4"]
    assert first["differed"]
    assert second["differed"]
    assert first["weights"] == second["weights"]
    # Weights and momentum once in four steps, instead of gradients in each.
    sent = first["bytes"] / wire.STEPS / first["parameters"] / 2
    assert sent < 4 * 2 / 4 * 1.3


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_averaging_after_each_step_of_sgd_is_ordinary_training(two_workers):
    (each, _), (plain, _) = two_workers["sync 1"], two_workers["none"]
    np.testing.assert_allclose(_weights(each), _weights(plain), atol=1e-6)


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize("whole", ["sync 4", "sync 4 saved"])
def test_a_restarted_training_equals_an_uninterrupted_one(two_workers, whole):
    found = [each["weights"] for each in two_workers[f"{whole} restarted"]]
    assert found == [each["weights"] for each in two_workers[whole]]
    # The last two of 26 steps are after the last averaging.
    assert (found[0] == found[1]) == (whole == "sync 4")


def _averaging(shape, every, momentum, **dense):
    """Returns the averaging of a model with one weight, and the weight."""
    layer = tf.keras.layers.Dense(1, use_bias=False, **dense)
    model = tf.keras.Sequential([tf.keras.Input(shape), layer])
    model.compile(optimizer=DeclaredOptimizer(Optimizer(name="sgd"), 10))
    (weight,) = model.trainable_variables
    weight.assign([[1.0], [0.0]][: shape[0]])
    model.optimizer._create_all_weights([weight])
    return Averaging(model, tf.distribute.get_strategy(), every=every, outer_momentum=momentum), weight


def test_the_outer_momentum_continues_in_the_direction_of_the_last_averagings():
    averaging, weight = _averaging((1,), 3, 0.5)
    after = tf.function(averaging.after)
    found = []
    for step, change in ((3, 2.0), (4, 3.0), (6, 1.0), (9, 0.0)):
        weight.assign_add([[change]])
        after(tf.constant(step, tf.int64))
        if step == 4:
            averaging.before_checkpoint()
        found.append(float(weight.numpy()[0, 0]))
    # Moves of 2, of 3 at a checkpoint, of 1 more and half of 2, and of half of 5.
    assert found == [3.0, 6.0, 8.0, 10.5]
    weight.assign([[1.0]])
    averaging.begin()
    after(tf.constant(12, tf.int64))
    assert weight.numpy() == [[2.25]]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_an_averaged_weight_keeps_its_constraint(momentum):
    averaging, weight = _averaging((2,), 1, momentum, kernel_constraint=tf.keras.constraints.UnitNorm())
    after = tf.function(averaging.after)
    # Like means of two weights of norm 1; the second follows a move, which the momentum continues.
    for step, mean in ((1, [[0.5], [0.5]]), (2, [[0.3], [0.1]])):
        before = weight.numpy()
        weight.assign(mean)
        after(tf.constant(step, tf.int64))
        expected = np.array(mean)
        if momentum and step == 2:
            expected = expected + momentum * (np.array([[0.5], [0.5]]) - [[1.0], [0.0]])
        np.testing.assert_allclose(weight, expected / np.linalg.norm(expected), atol=1e-6)
        assert np.abs(weight.numpy() - before).max() > 0.1
    weight.assign([[0.3], [0.1]])
    averaging.before_checkpoint()
    assert np.linalg.norm(weight.numpy()) == pytest.approx(1, abs=1e-6)


@pytest.fixture(scope="module")
def in_step(tmp_path_factory, digits, settings):
    """The accuracy on the digits of workers that add up gradients in each step."""
    return _accuracy(Training(tmp_path_factory.mktemp("Trainer"), digits), settings, path="keras")


def _accuracy(training, settings, **trainer):
    # Checkpoints and the end are between two averagings.
    trainer = {"train_steps": 202, "save_checkpoints_steps": 101, "distribution": WORKERS, **trainer}
    _, run = training.run(settings(trainer), steps=202)
    assert run.get_float_custom_property("last_step") == 202
    return run.get_float_custom_property("eval_accuracy")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_the_accuracy_equals_that_of_workers_in_step(path, in_step, training, settings):
    assert in_step > 0.9
    assert _accuracy(training, settings, path=path, sync_every=4) == pytest.approx(in_step, abs=0.01)
