"""Optimizers read from a training graph, completed by a declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.optimizers import recorded
from tfx_estimator.model_fn.bridge.training_graph import Training, look
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.convert.replacement import declared

_V1 = tf.compat.v1


def adagrad(epsilon: float) -> Callable[[], Any]:
    """Returns a maker of Keras's Adagrad, whose step is the global step."""

    def make() -> Any:
        optimizer = tf.keras.optimizers.legacy.Adagrad(0.02, epsilon=epsilon)
        optimizer.iterations = _V1.train.get_or_create_global_step()
        return optimizer

    return make


def read(make: Callable[[], Any], clip: Callable[[list[Any]], list[Any]] = list, norm: float | None = None) -> Training:
    """Reads the graph of a training of two embedding rows, whose norm may be limited."""
    with tf.Graph().as_default(), _V1.Session() as session:
        step = _V1.train.get_or_create_global_step()
        weight = _V1.get_variable("weight", [3, 2])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(weight, [0, 1], max_norm=norm) ** 2)
        optimizer = make()
        gradients = clip([tf.convert_to_tensor(each) for each in tf.gradients(loss, [weight])])
        with recorded(session.graph) as applied:
            if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
                train_op = optimizer.apply_gradients(zip(gradients, [weight]))
            else:
                train_op = optimizer.apply_gradients(zip(gradients, [weight]), step)
        session.run(_V1.global_variables_initializer())
        return look(session, train_op, applied, 0, 10)


def adam() -> Any:
    return _V1.train.AdamOptimizer(0.002)


def decayed() -> Any:
    return _V1.train.AdamOptimizer(_V1.train.exponential_decay(0.004, _V1.train.get_global_step(), 6, 0.5))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_options_not_in_the_graph_come_from_any_declared_optimizer(name: str) -> None:
    given = {"clip_norm": 0.5, "weight_decay": 0.1, "decoupled_weight_decay": 0.2}
    of_graph = {"name": "adam", "learning_rate": 0.002, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}
    own = {"momentum": 0.5} if name == "momentum" else {}
    found = declared(read(adam), Optimizer(name=name, **own, **given), 10)
    assert found == Optimizer(**of_graph, **given, schedule="constant")
    schedule = {"learning_rate": 0.004, "schedule": "exponential", "decay_steps": 6, "decay_rate": 0.5}
    found = declared(read(decayed), Optimizer(name=name, **own, **given, **schedule), 10)
    assert found == Optimizer(**{**of_graph, **given, **schedule})


@pytest.mark.parametrize(
    ("clip", "functions"),
    [
        (lambda gradients: [tf.clip_by_norm(each, 9.0) for each in gradients], "clip_by_norm"),
        (lambda gradients: tf.clip_by_global_norm(gradients, 9.0)[0], "clip_by_global_norm, global_norm"),
        (lambda gradients: [each / tf.linalg.global_norm(gradients) for each in gradients], "global_norm"),
        (lambda gradients: [tf.clip_by_value(each, -9.0, 9.0) for each in gradients], "clip_by_value"),
    ],
)
def test_clipping_must_be_declared(clip: Callable[[list[Any]], list[Any]], functions: str) -> None:
    found = read(adam, clip)
    with pytest.raises(UserCodeError, match=f"clips its gradients by {functions}; its graph does not show") as wrong:
        declared(found, Optimizer(name="adam"), 10)
    assert "clip_norm, global_clip_norm or clip_value" in wrong.value.expected
    assert declared(found, Optimizer(global_clip_norm=9), 10).global_clip_norm == 9


def test_a_clipped_weight_is_not_a_clipped_gradient() -> None:
    assert declared(read(adam, norm=1.0), Optimizer(), 10).clip_norm is None


def test_an_epsilon_that_no_declared_adagrad_has_is_refused() -> None:
    found = read(adagrad(1e-7)).optimizer
    assert found == {"name": "adagrad", "learning_rate": 0.02, "initial_accumulator_value": 0.1}
    with pytest.raises(UserCodeError, match=r"epsilon of the model_fn's adagrad is 0\.001"):
        read(adagrad(1e-3))


@pytest.mark.parametrize(
    "options", [{"momentum": 0.9, "nesterov": True}, {"rho": 0.8, "centered": True, "epsilon": 1e-3}]
)
def test_options_of_keras_optimizers_are_read(options: dict[str, Any]) -> None:
    kind = tf.keras.optimizers.legacy.RMSprop if "rho" in options else tf.keras.optimizers.legacy.SGD

    def make() -> Any:
        optimizer = kind(0.02, **options)
        optimizer.iterations = _V1.train.get_or_create_global_step()
        return optimizer

    found = read(make).optimizer
    assert {name: found[name] for name in options} == options
