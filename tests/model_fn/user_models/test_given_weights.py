"""Weights that a network's function sets, in each of Keras's ways."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.user import weights_given
from tests.model_fn.batch import PARAMS, input_fn
from tfx_estimator.components.trainer.estimator.first_call import call_again, call_first
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection


def find(function):
    spec = {"image": tf.io.FixedLenFeature([28, 28, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    return call_first(function, TrainerSection(), 3, spec)


def trained(function, folder, steps=1):
    first = find(function)
    model_fn = make_model_fn(lambda classes: call_again(function, classes, {}, first), given=first.given)
    estimator = tf.estimator.Estimator(model_fn, str(folder), params=PARAMS)
    estimator.train(input_fn, steps=steps)
    values = {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}
    return first, {"/".join(name.split("/")[-2:]): value for name, value in values.items()}


@pytest.mark.parametrize("way", ["set", "assign", "file", "checkpoint", "model"])
def test_an_estimator_trains_a_loaded_part(tmp_path, way):
    weights_given.write(str(tmp_path))
    first, found = trained(lambda n: weights_given.network(n, way, str(tmp_path)), tmp_path / "run")
    assert first.given.places == tuple(range(6))
    for name, given in weights_given.weights().items():
        np.testing.assert_array_equal(found[name], given, err_msg=name)


def test_two_weights_of_a_layer_may_have_one_name(tmp_path):
    class Twice(tf.keras.layers.Layer):
        def build(self, shape):
            self.parts = [self.add_weight("w", [shape[-1], 4]) for _ in range(2)]

        def call(self, inputs):
            return inputs @ self.parts[0] - inputs @ self.parts[1]

    rng = np.random.default_rng(1)
    given = [rng.normal(size=shape).astype(np.float32) for shape in [(784, 4), (784, 4), (4, 3), (3,)]]

    def network(num_classes):
        layers = tf.keras.layers
        twice = Twice(name="twice", trainable=False)
        network = tf.keras.Sequential(
            [tf.keras.Input([28, 28, 1], name="image"), layers.Flatten(), twice, layers.Dense(num_classes)]
        )
        network.layers[1].set_weights(given[:2])
        return network

    first, found = trained(network, tmp_path)
    assert first.given.places == (0, 1)
    for name, value in zip(["twice/w", "twice/w_1"], given):
        np.testing.assert_array_equal(found[name], value)


def test_a_network_without_given_weights_depends_only_on_its_seed(tmp_path):
    def plain(num_classes):
        return weights_given.network(num_classes, way="none", frozen=False)

    first, _ = trained(plain, tmp_path)
    assert first.given is None


def test_a_function_that_loads_only_in_a_graph_is_refused(tmp_path):
    def only_in_a_graph(num_classes):
        if tf.executing_eagerly():
            raise RuntimeError("no placeholders here")
        return weights_given.network(num_classes)

    with pytest.raises(UserCodeError, match="RuntimeError: no placeholders here") as caught:
        trained(only_in_a_graph, tmp_path)
    assert "declare trainer.warm_start" in str(caught.value)
