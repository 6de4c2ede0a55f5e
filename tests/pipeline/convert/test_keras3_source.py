"""The source for Keras 3 computes the same as the project's own schedules and optimizers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.stack import needs_keras_3
from tfx_estimator.model_fn.bridge.keras3.optimizers import optimizer_of, refuse_unknown
from tfx_estimator.model_fn.bridge.optimizers import ROWS
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.optim.schedules import learning_rate
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.convert.keras3.rates import rate_of

RATES: list[dict[str, Any]] = [
    {"schedule": "constant", "warmup_steps": 4},
    {"schedule": "cosine"},
    {"schedule": "cosine", "warmup_steps": 4, "end_learning_rate": 0.01, "decay_steps": 12},
    {"schedule": "linear", "warmup_steps": 4},
    {"schedule": "polynomial", "power": 2.0, "end_learning_rate": 0.01},
    {"schedule": "exponential", "decay_rate": 0.5, "decay_steps": 5},
    {"schedule": "exponential", "decay_rate": 0.5, "decay_steps": 5, "staircase": True, "warmup_steps": 4},
    {"schedule": "inverse_time", "decay_rate": 0.5, "decay_steps": 5},
    {"schedule": "piecewise", "boundaries": (5, 11), "values": (0.1, 0.05, 0.02)},
    {"schedule": "one_cycle"},
]
OPTIMIZERS: list[dict[str, Any]] = [
    {"name": "sgd"},
    {"name": "sgd", "momentum": 0.8, "decoupled_weight_decay": 0.01},
    {"name": "sgd", "momentum": 0.8, "nesterov": True, "clip_value": 0.1},
    {"name": "momentum", "momentum": 0.8, "global_clip_norm": 0.5},
    {"name": "rmsprop", "clip_norm": 0.3},
    {"name": "rmsprop", "momentum": 0.5, "centered": True, "epsilon": 1e-4},
    {"name": "adam", "epsilon": 1e-3, "beta_1": 0.8},
    {"name": "adam", "amsgrad": True},
    {"name": "adamw"},
    {"name": "adadelta"},
    {"name": "adagrad"},
    {"name": "adamax"},
    {"name": "ftrl", "l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1},
    {"name": "ftrl", "l2_shrinkage_regularization_strength": 0.02, "learning_rate_power": -0.4},
    {"name": "lion", "beta_2": 0.9},
]
STEPS = 20


def executed(definition: str) -> dict[str, Any]:
    """Executes the written source, with the imports of `training.py`."""
    import keras

    names: dict[str, Any] = {"keras": keras, "tf": tf}
    exec(definition, names)
    return names


@needs_keras_3
@pytest.mark.parametrize("section", RATES, ids=lambda section: "-".join(map(str, section.values())))
def test_a_rate_equals_the_declared_schedule(section: dict[str, Any]) -> None:
    optimizer = Optimizer.parse_obj({"name": "adam", "learning_rate": 0.1, **section})
    definition, made = rate_of(optimizer, STEPS)
    rate = eval(made, executed(definition))
    for step in range(STEPS + 3):
        wanted = learning_rate(optimizer, STEPS, tf.constant(step, tf.int64))
        np.testing.assert_allclose(rate(tf.constant(step)), wanted, rtol=1e-5, atol=1e-9, err_msg=f"step {step}")


@needs_keras_3
@pytest.mark.parametrize("section", OPTIMIZERS, ids=lambda section: "-".join(map(str, section.values())))
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "by rows"])
def test_an_optimizer_continues_like_the_declared_one(section: dict[str, Any], sparse: bool) -> None:
    import keras

    declared = Optimizer.parse_obj({"learning_rate": 0.1, "schedule": "cosine", **section})
    draw = np.random.default_rng(3).normal
    gradients = [draw(size=(3, 2)).astype("float32") for _ in range(6)]
    # The rate of the last step is 0.
    ours = DeclaredOptimizer(declared, 5)
    variable = tf.Variable(draw(size=(3, 2)).astype("float32"))
    for gradient in gradients[:3]:
        ours.apply_gradients([(tf.constant(gradient), variable)])

    options = declared.resolved()
    rate, made_rate = rate_of(declared, 5)
    definition, made = optimizer_of(options, made_rate, sparse)
    theirs = eval(made, executed(f"{rate}\n\n{definition}"))
    other = keras.Variable(variable.numpy(), name="kernel")
    theirs.build([other])
    slots = {each.path: each for each in theirs.variables}
    slots["optimizer/iteration"].assign(3)
    names = {each.keras3: each.ours for each in ROWS[options["name"]].slots}
    names = {name: slot for name, slot in names.items() if f"optimizer/kernel_{name}" in slots}
    for name, slot in names.items():
        slots[f"optimizer/kernel_{name}"].assign(ours.get_slot(variable, slot))
    assert set(slots) == {"optimizer/iteration", *(f"optimizer/kernel_{name}" for name in names)}
    for gradient in gradients[3:]:
        given = tf.constant(gradient)
        ours.apply_gradients([(given, variable)])
        # Each row twice, with half of its gradient.
        rows = tf.IndexedSlices(tf.concat([given, given], 0) / 2, tf.range(6) % 3, tf.constant([3, 2]))
        theirs.apply_gradients([(rows if sparse else given, other)])
    np.testing.assert_allclose(other.numpy(), variable.numpy(), rtol=0, atol=1e-6)
    for name, slot in names.items():
        found = slots[f"optimizer/kernel_{name}"].numpy()
        np.testing.assert_allclose(found, ours.get_slot(variable, slot).numpy(), rtol=0, atol=1e-6, err_msg=slot)


@needs_keras_3
def test_nesterov_momentum_equals_that_of_tensorflow_1() -> None:
    import keras

    options = {**Optimizer.parse_obj({"name": "momentum", "learning_rate": 0.1}).resolved(), "nesterov": True}
    definition, made = optimizer_of(options, "0.1", sparse=False)
    theirs, ours = eval(made, executed(definition)), tf.compat.v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True)
    variable, other = tf.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    for gradient in itertools.repeat(tf.constant([0.3, -0.2]), 3):
        ours.apply_gradients([(gradient, variable)])
        theirs.apply_gradients([(gradient, other)])
    np.testing.assert_allclose(other.numpy(), variable.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "nadam"}, "the optimizer nadam keeps other slots"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "clip_norm and clip_value are declared"),
        ({"scaling": "linear"}, "trainer.optimizer.scaling: linear depends on the replicas"),
    ],
)
def test_an_optimizer_that_keras_3_treats_differently_is_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(UserCodeError, match=words):
        refuse_unknown(Optimizer.parse_obj(section).resolved())
