"""A step compiled by XLA trains like the uncompiled one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.model_fn.batch import PARAMS
from tfx_estimator.model_fn.layers import StatelessDropout, SynchronizedBatchNormalization
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.compiling import refuse_collectives
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection

SGD = {"name": "momentum", "learning_rate": 0.1, "warmup_steps": 2, "clip_norm": 1.0}
COMPILES = "_XlaMustCompile"
STEPS = 3


def _network(num_classes=10, norm=None):
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Flatten(),
            layers.Dense(16, activation="relu", kernel_regularizer="l2"),
            norm or layers.BatchNormalization(momentum=0.5),
            StatelessDropout(0.3),
            layers.Dense(num_classes),
        ]
    )


def _batch():
    draw = np.random.default_rng(0)
    return {"image": draw.standard_normal((8, 6, 6, 1)).astype("float32")}, draw.integers(0, 10, 8)


def _keras(xla, parts, norm=None):
    """Returns the losses of some steps, the weights after them, and whether XLA compiles anything."""
    section = TrainerSection.parse_obj(
        {"model": "own:net", "train_steps": 9, "global_batch_size": 8, "xla": xla, "gradient_accumulation": parts}
    )
    tf.keras.utils.set_random_seed(1)
    model = KerasClassifier(_network(norm=norm), section)
    data = tf.nest.map_structure(tf.constant, _batch())
    model(data[0])
    optimizer = DeclaredOptimizer(Optimizer.parse_obj(SGD), 9)
    optimizer._create_all_weights(model.trainable_variables)
    model.compile(optimizer=optimizer)
    step = tf.function(model.train_step).get_concrete_function(data)
    losses = [float(step(*tf.nest.flatten(data))["loss"]) for _ in range(STEPS)]
    assert int(optimizer.iterations) == STEPS
    return losses, model.get_weights(), COMPILES in str(step.graph.as_graph_def())


def _estimator(xla, parts, folder, make=_network):
    sizes = {"num_classes": 10, "train_steps": 9, "global_batch_size": 8}
    params = {**PARAMS, **sizes, "optimizer": SGD, "xla": xla, "gradient_accumulation": parts}
    estimator = tf.estimator.Estimator(make_model_fn(make), str(folder), params=params)
    losses, compiles = [], []

    class Losses(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context):
            graph = run_context.session.graph
            compiles.append(COMPILES in str(graph.as_graph_def()))
            # Of the step, before its update.
            loss = graph.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]
            return tf.compat.v1.train.SessionRunArgs(loss)

        def after_run(self, run_context, run_values):
            losses.append(run_values.results)

    def input_fn():
        return tf.data.Dataset.from_tensors(_batch()).repeat()

    estimator.train(input_fn, steps=STEPS, hooks=[Losses()])
    names = [each for each in estimator.get_variable_names() if "kernel" in each or "moving" in each or "bias" in each]
    weights = [estimator.get_variable_value(each) for each in sorted(names)]
    assert estimator.get_variable_value("global_step") == STEPS
    return losses, weights, compiles[-1]


@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", ["keras", "estimator"])
def test_weights_and_losses_equal_those_of_the_plain_step(path, parts, tmp_path):
    (losses, weights, compiles), (other_losses, other_weights, other_compiles) = (
        _keras(xla, parts) if path == "keras" else _estimator(xla, parts, tmp_path / str(xla)) for xla in (False, True)
    )
    assert (compiles, other_compiles) == (False, True)
    assert losses[0] != losses[-1]
    np.testing.assert_allclose(losses, other_losses, atol=1e-5)
    for one, other in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


NORMS = {
    "own": lambda: SynchronizedBatchNormalization(name="norm"),
    "within": lambda: tf.keras.Sequential([SynchronizedBatchNormalization(name="norm")]),
    "keras": lambda: tf.keras.layers.BatchNormalization(synchronized=True, name="norm"),
}


@pytest.mark.parametrize("norm", NORMS)
def test_a_layer_that_adds_up_over_replicas_is_refused_with_several(norm):
    refuse_collectives(_network(norm=NORMS[norm]()), replicas=1)
    with pytest.raises(UserCodeError, match=r"layer 'norm' \(\w*Normalization\) of the network sums over all"):
        refuse_collectives(_network(norm=NORMS[norm]()), replicas=2)


@pytest.mark.parametrize("trainable", [True, False])
def test_a_layer_without_sums_over_replicas_is_compiled(trainable):
    """Keras's own layer, which normalises each replica separately, and a frozen one."""
    norm = tf.keras.layers.BatchNormalization() if trainable else SynchronizedBatchNormalization(trainable=False)
    refuse_collectives(_network(norm=norm), replicas=2)
    assert _keras(True, 1, norm)[2]
