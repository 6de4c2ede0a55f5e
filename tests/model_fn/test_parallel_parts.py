"""Parts of a batch at the same time; that every path trains so under every strategy is shown in tests/equivalence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.model_fn.test_accumulation import comes_after, train_step
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit


def test_parts_wait_for_nothing_of_each_other():
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import Computed, in_turn
    from tfx_estimator.model_fn.parallel_parts import in_parallel

    begun, done, firsts = [], [], []

    def compute(part):
        begun.append(part.features["x"])
        done.append(tf.reduce_sum(part.features["x"]) * tf.cast(part.share, tf.float32))
        firsts.append(part.first)
        return Computed(done[-1], tf.cast(tf.size(part.labels), tf.float32), [None])

    graph = tf.Graph()
    with graph.as_default():
        batch = {"x": tf.compat.v1.placeholder(tf.float32, [None])}, tf.compat.v1.placeholder(tf.int64, [None])
        whole = in_turn(in_parallel(compute, 3), *batch, 2)
    assert firsts == [True, False, False, False, False, False]
    for group in (range(3), range(3, 6)):
        for one in group:
            assert not any(comes_after(begun[one].op, done[other].op) for other in group)
    # The second three come when the first are done.
    assert all(comes_after(begun[later].op, done[earlier].op) for later in range(3, 6) for earlier in range(3))
    with tf.compat.v1.Session(graph=graph) as session:
        values = np.arange(7.0)
        found = session.run([whole.loss, whole.hits], {batch[0]["x"]: values, batch[1]: np.ones(7)})
    # 3 and 4 of 7 examples, in parts of 1, 1, 1 and of 1, 1, 2: each times its share of all seven.
    assert found == pytest.approx([(0 + 1 + 2 + 3 + 4 + 2 * (5 + 6)) / 7, 7])


@pytest.mark.parametrize(("parts", "parallel"), [(1, 2), (1, 7), (2, 3)])
def test_a_step_in_parallel_parts_is_that_of_the_whole_batch(parts, parallel):
    one, reported = train_step(1, 7)
    other, of_parts = train_step(parts, 7, parallel_parts=parallel)
    assert of_parts == pytest.approx(reported, abs=1e-6)
    assert int(other.optimizer.iterations) == 1
    for expected, found in zip(one.optimizer.variables(), other.optimizer.variables()):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=expected.name)


def _network(norm: Any) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    network = tf.keras.Sequential([tf.keras.Sequential([norm]), layers.Dropout(0.5), layers.Dense(3)])
    network.build((None, 2))
    return network


def _layer(kind: str) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    if kind == "batch norm":
        return layers.BatchNormalization(name="norm")
    if kind == "frozen batch norm":
        return layers.BatchNormalization(name="norm", trainable=False)
    if kind == "adapted":
        norm = layers.Normalization(name="norm")
        norm.adapt(np.arange(12.0).reshape(6, 2))
        return norm

    class Holder(tf.Module):
        """A state that is no layer's weight."""

        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0.0, trainable=False)

    class Counting(layers.Layer):
        """Counts the examples that it has seen."""

        def build(self, shape: Any) -> None:
            """Makes the count."""
            count = self.add_weight("count", [], tf.float32, initializer="zeros", trainable=False)
            self.held = Holder() if kind == "module" else None
            self.count = self.held.count if self.held else count

        def call(self, inputs: Any) -> Any:
            """Counts."""
            if kind != "constant":
                self.count.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
            return inputs + self.count

    return Counting(name="norm", trainable=kind != "frozen counting")


def _compile(network: Any, **declared: Any) -> Any:
    from tfx_estimator.model_fn.keras_classifier import KerasClassifier
    from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer

    section = TrainerSection.parse_obj({"train_steps": 9, "global_batch_size": 6, **declared})
    classifier = KerasClassifier(network, section)
    classifier.compile(optimizer=make_keras_optimizer(section.optimizer, 9))
    return classifier


BATCH = {"x": np.ones([6, 2], np.float32)}, np.ones([6], np.int64)


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        ("batch norm", "the layer norm (BatchNormalization)"),
        ("counting", "the layer norm (Counting)"),
        ("module", "the layer norm (Counting)"),
        ("frozen counting", "a layer"),
    ],
)
def test_a_step_that_assigns_to_a_state_is_refused_in_parts(kind, layer):
    import tensorflow as tf

    classifier = _compile(_network(_layer(kind)), parallel_parts=2)
    with pytest.raises(UserCodeError) as caught:
        tf.function(classifier.train_step)(BATCH)
    assert f"trainer.parallel_parts: 2, and {layer} of the network follows batches" in str(caught.value)
    assert "set trainer.parallel_parts: 1" in str(caught.value)
    tf.function(_compile(_network(_layer(kind))).train_step)(BATCH)


@pytest.mark.parametrize("kind", ["frozen batch norm", "adapted", "constant"])
def test_a_layer_that_a_step_leaves_as_it_is_may_be_in_parts(kind):
    import tensorflow as tf

    values = tf.function(_compile(_network(_layer(kind)), parallel_parts=2).train_step)(BATCH)
    assert float(values["loss"]) > 0


def test_each_part_has_operations_of_its_own_on_the_keras_paths():
    import tensorflow as tf

    def products(**declared: Any) -> int:
        network = tf.keras.Sequential([tf.keras.layers.Dense(3)])
        network.build((None, 2))
        step = tf.function(_compile(network, **declared).train_step)
        return [each.type for each in step.get_concrete_function(BATCH).graph.get_operations()].count("MatMul")

    assert (whole := products()) > 1
    assert products(parallel_parts=3) == 3 * whole
    assert products(parallel_parts=3, gradient_accumulation=2) == 6 * whole


def _model_fn_graph(layer: Any, parts: int) -> Any:
    import tensorflow as tf

    from tfx_estimator.model_fn.classifier import make_model_fn

    params = {
        "num_classes": 3,
        "train_steps": 2,
        "global_batch_size": 6,
        "seed": 1,
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant"},
        "parallel_parts": parts,
    }
    with tf.Graph().as_default() as graph:
        network = lambda classes: tf.keras.Sequential([layer(), tf.keras.layers.Dense(classes)])  # noqa: E731
        batch = {"image": tf.constant(BATCH[0]["x"])}, tf.constant(BATCH[1])
        make_model_fn(network)(*batch, ModeKeys.TRAIN, params)
    return graph


def test_each_part_has_operations_of_its_own_in_an_estimator():
    import tensorflow as tf

    counts = []
    for parts in (1, 3):
        graph = _model_fn_graph(lambda: tf.keras.layers.Dense(2, use_bias=False), parts)
        counts.append([each.type for each in graph.get_operations()].count("MatMul"))
    assert counts[0] > 4
    assert counts[1] == 3 * counts[0]


@pytest.mark.parametrize("kind", ["batch norm", "counting", "frozen counting"])
def test_a_state_of_an_estimators_graph_is_refused_in_parts(kind):
    with pytest.raises(
        UserCodeError, match=r"parallel_parts: 2, and (the layer norm|a layer).* of the network follows"
    ):
        _model_fn_graph(lambda: _layer(kind), 2)
    _model_fn_graph(lambda: _layer(kind), 1)


@pytest.mark.parametrize("kind", ["frozen batch norm", "constant"])
def test_a_state_that_stays_as_it_is_may_be_in_the_parts_of_an_estimator(kind):
    _model_fn_graph(lambda: _layer(kind), 2)


def test_what_is_no_network_is_refused_but_by_auto():
    from tfx_estimator.model_fn.own_step import refuse_step_options

    for parts in (1, "auto"):
        refuse_step_options(TrainerSection(train_steps=9, model="mine:net", parallel_parts=parts), "is compiled")
    with pytest.raises(UserCodeError, match="parallel_parts: 2, and 'mine:net' is compiled: its batches would stay"):
        refuse_step_options(TrainerSection(train_steps=9, model="mine:net", parallel_parts=2), "is compiled")
