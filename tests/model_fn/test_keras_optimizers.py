"""The declared optimizers in Keras, against its own classes."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.config.optimizer import Optimizer

pytestmark = pytest.mark.unit

STEPS = 10


def trained(optimizer) -> list[np.ndarray]:
    """Weights of a small network after some steps."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(5, activation="tanh"), layers.Dense(3)])
    generator = np.random.default_rng(1)
    inputs = tf.constant(generator.normal(size=(STEPS, 8, 4)).astype(np.float32))
    targets = tf.constant(generator.normal(size=(STEPS, 8, 3)).astype(np.float32))
    model.build((None, 4))

    @tf.function
    def train(values, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(values) - wanted) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for step in range(STEPS):
        train(inputs[step], targets[step])
    return model.get_weights()


def declared(**values):
    from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer

    return make_keras_optimizer(Optimizer(**values), STEPS)


def test_in_a_function_the_update_is_that_of_keras_with_a_schedule():
    import tensorflow as tf

    rate = tf.keras.optimizers.schedules.CosineDecay(0.05, STEPS)
    ours = trained(declared(name="adam", learning_rate=0.05, schedule="cosine"))
    for one, other in zip(ours, trained(tf.keras.optimizers.Adam(rate))):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_momentum_is_that_of_keras_where_the_rate_is_constant():
    import tensorflow as tf

    ours = trained(declared(name="momentum", learning_rate=0.05, schedule="constant"))
    for one, other in zip(ours, trained(tf.keras.optimizers.SGD(0.05, momentum=0.9))):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_gradients_of_layers_on_several_devices_stay_there():
    import tensorflow as tf

    variable = tf.Variable(tf.zeros([256]))
    optimizer = declared(name="sgd", learning_rate=1.0, schedule="constant")

    @tf.function
    def step():
        # A graph is made for devices that are not there, and not run.
        with tf.device("/device:GPU:1"):
            gradient = tf.sin(tf.ones([256]))
        optimizer.apply_gradients([(gradient, variable)])

    (gradient,) = (op for op in step.get_concrete_function().graph.get_operations() if op.type == "Sin")
    # And not one of no device, such as a sum over one replica, which is on the first.
    assert [op.type for op in gradient.outputs[0].consumers()] == ["ResourceApplyGradientDescent"]


def test_an_optimizer_can_be_written_down():
    import tensorflow as tf

    optimizer = declared(name="adam", learning_rate=0.05, schedule="cosine")
    again = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(optimizer), use_legacy_optimizer=True)
    for one, other in zip(trained(optimizer), trained(again)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("clipping", ["clip_norm", "global_clip_norm", "clip_value"])
def test_a_variable_in_parts_is_clipped_by_the_norm_of_all_of_it(clipping):
    import tensorflow as tf
    from tensorflow.python.distribute.sharded_variable import ShardedVariable

    gradients = [np.arange(1, 33, dtype=np.float32).reshape(8, 4), np.full([8, 4], 0.01, np.float32), np.ones(3)]

    def step(cut: bool) -> list[np.ndarray]:
        wholes, pairs = [], []
        # The last is whole in any case; the two others have the same name.
        for gradient, rows in zip(gradients, ((3, 5), (4, 4), ())):
            split = np.split(gradient, np.cumsum(rows[:-1])) if cut and rows else [gradient]
            parts = [tf.Variable(np.zeros_like(each, np.float32), name=f"part_{i}") for i, each in enumerate(split)]
            wholes.append(ShardedVariable(parts) if len(parts) > 1 else parts[0])
            pairs += zip(map(tf.constant, split), parts)
        optimizer = declared(name="sgd", learning_rate=1.0, schedule="constant", **{clipping: 1.0})
        optimizer.apply_gradients([(tf.cast(gradient, tf.float32), part) for gradient, part in pairs])
        return [tf.convert_to_tensor(each).numpy() for each in wholes]

    whole, parts = step(cut=False), step(cut=True)
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    if clipping == "clip_norm":
        assert np.linalg.norm(parts[0]) == pytest.approx(1, rel=1e-5)
        # Within the limit, though it is not with the other of its name.
        np.testing.assert_allclose(parts[1], -gradients[1], rtol=1e-6)


def test_variables_whose_whole_is_gone_are_clipped_each_by_itself():
    import tensorflow as tf

    from tfx_estimator.model_fn.keras_optimizers import _of_whole_variables

    variables = [tf.Variable([1.0]), tf.Variable([2.0])]
    for variable in variables:
        variable._sharded_container = lambda: None
    assert _of_whole_variables([tf.constant([3.0]), tf.constant([4.0])], variables) == {}
