"""Each declared optimizer, on the Estimator path and in Keras, against the class of tf.keras.optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfx_estimator.pipeline.config.optimizer import Optimizer

pytestmark = pytest.mark.unit

STEPS = 6
RATE = 0.05
INPUTS = np.random.default_rng(1).normal(size=(STEPS, 8, 4)).astype(np.float32)
TARGETS = np.random.default_rng(2).normal(size=(STEPS, 8, 3)).astype(np.float32) * 10
FIRST = [
    np.random.default_rng(3 + n).normal(size=shape).astype(np.float32) for n, shape in enumerate([(4, 5), (5,), (5, 3)])
]

# Declared -> what Keras is told.
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "sgd"}, {}),
    ({"name": "sgd", "momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
    ({"name": "rmsprop"}, {}),
    ({"name": "rmsprop", "rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 0.01},
     {"rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 0.01}),
    ({"name": "adam"}, {}),
    ({"name": "adam", "beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.01, "amsgrad": True},
     {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.01, "amsgrad": True}),
    ({"name": "adamw"}, {}),
    ({"name": "adamw", "decoupled_weight_decay": 0.1}, {"weight_decay": 0.1}),
    ({"name": "adadelta", "learning_rate": 1.0, "rho": 0.9}, {"learning_rate": 1.0, "rho": 0.9}),
    ({"name": "adagrad"}, {}),
    ({"name": "adagrad", "initial_accumulator_value": 0.0, "epsilon": 0.1},
     {"initial_accumulator_value": 0.0, "epsilon": 0.1}),
    ({"name": "adamax", "decoupled_weight_decay": 0.1}, {"weight_decay": 0.1}),
    ({"name": "adafactor"}, {}),
    ({"name": "adafactor", "beta_2_decay": -0.5, "epsilon_2": 0.1, "clip_threshold": 0.5},
     {"beta_2_decay": -0.5, "epsilon_2": 0.1, "clip_threshold": 0.5}),
    ({"name": "nadam", "beta_1": 0.8}, {"beta_1": 0.8}),
    ({"name": "ftrl"}, {}),
    ({"name": "ftrl", "l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1,
      "l2_shrinkage_regularization_strength": 0.03, "learning_rate_power": -0.4},
     {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1,
      "l2_shrinkage_regularization_strength": 0.03, "learning_rate_power": -0.4}),
    ({"name": "lion", "beta_2": 0.95}, {"beta_2": 0.95}),
    ({"name": "sgd", "clip_norm": 0.5}, {"clipnorm": 0.5}),
    ({"name": "adam", "global_clip_norm": 0.5}, {"global_clipnorm": 0.5}),
    ({"name": "sgd", "clip_value": 0.1}, {"clipvalue": 0.1}),
]  # fmt: skip
CLASSES = {
    "sgd": "SGD",
    "rmsprop": "RMSprop",
    "adamw": "AdamW",
    **{
        name: name.capitalize()
        for name in ("adam", "adadelta", "adagrad", "adamax", "adafactor", "nadam", "ftrl", "lion")
    },
}


def loss_of(weights, inputs, targets):
    import tensorflow as tf

    return tf.reduce_mean((tf.tanh(inputs @ weights[0] + weights[1]) @ weights[2] - targets) ** 2)


def in_keras(optimizer) -> list[np.ndarray]:
    """Eagerly: within a tf.function, Keras 2.15's Nadam counts its steps wrong."""
    import tensorflow as tf

    weights = [tf.Variable(first) for first in FIRST]
    for inputs, targets in zip(INPUTS, TARGETS):
        with tf.GradientTape() as tape:
            loss = loss_of(weights, inputs, targets)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return [weight.numpy() for weight in weights]


def in_graph(section: Optimizer) -> list[np.ndarray]:
    """As an Estimator does."""
    import tensorflow as tf

    from tfx_estimator.model_fn.optimizers import make_optimizer
    from tfx_estimator.model_fn.schedules import learning_rate
    from tfx_estimator.model_fn.update import gradients_of, update

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.create_global_step()
        weights = [
            tf.compat.v1.get_variable(f"w{n}", initializer=first, use_resource=True) for n, first in enumerate(FIRST)
        ]
        inputs, targets = (tf.gather(tf.constant(values), step) for values in (INPUTS, TARGETS))
        optimizer = make_optimizer(section, learning_rate(section, STEPS, step), step)
        train = update(gradients_of(loss_of(weights, inputs, targets), weights), weights, optimizer, step)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train)
        return session.run(weights)


@pytest.mark.parametrize(("declared", "options"), CASES, ids=lambda values: " ".join(map(str, values.values())))
def test_the_update_is_that_of_keras_on_every_path(declared, options):
    import tensorflow as tf

    from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer

    section = Optimizer(**{"learning_rate": RATE, "schedule": "constant", **declared})
    estimator, ours = in_graph(section), in_keras(make_keras_optimizer(section, STEPS))
    keras = in_keras(getattr(tf.keras.optimizers, CLASSES[section.name])(**{"learning_rate": RATE, **options}))
    for one, other, third, first in zip(estimator, ours, keras, FIRST):
        np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_allclose(one, third, atol=1e-5)
        assert np.abs(one - first).max() > 1e-3


def test_every_optimizer_is_tried():
    from tfx_estimator.model_fn.update_rules import RULES

    assert {declared["name"] for declared, _ in CASES} | {"momentum"} == {*RULES}


def test_momentum_is_that_of_tensorflow_1_to_the_bit():
    import tensorflow as tf

    from tfx_estimator.model_fn import optimizers

    class Plain(tf.compat.v1.train.MomentumOptimizer):
        def __init__(self, section, rate, *others):
            super().__init__(rate, section.resolved()["momentum"])

    section = Optimizer(name="momentum", learning_rate=RATE)
    ours = in_graph(section)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizers, "DeclaredOptimizer", Plain)
        plain = in_graph(section)
    for one, other in zip(ours, plain):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [declared["name"] for declared, options in CASES if not options])
def test_a_rate_of_0_changes_nothing(name):
    from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer

    values = {"name": name, "schedule": "piecewise", "boundaries": [1], "values": [0.0, 0.0]}
    section = Optimizer(**values)
    for weights in (in_graph(section), in_keras(make_keras_optimizer(section, STEPS))):
        for one, first in zip(weights, FIRST):
            np.testing.assert_array_equal(one, first)
