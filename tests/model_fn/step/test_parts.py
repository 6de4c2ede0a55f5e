"""A batch in parts; tests/equivalence covers every path under every strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.model_fn.batch import PARAMS
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.parts import AT_ONCE, IN_TURN, Computed, Part, cut, in_parts
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.testing import call_model_fn


def test_parts_are_of_equal_size_to_within_one_and_come_in_turn():
    sizes, shares, starts, ends = [], [], [], []

    def compute(part):
        sizes.append(tf.size(part.labels))
        shares.append(part.share)
        starts.append(part.features["x"])
        ends.append(tf.reduce_sum(part.features["x"]))
        return Computed(ends[-1], tf.constant(0.0), [None])

    batch = {"x": tf.range(10.0)}, tf.range(10, dtype=tf.int64)
    assert float(in_parts(compute, 4, IN_TURN)(Part(*batch)).loss) == 45
    assert [int(size) for size in sizes] == [2, 3, 2, 3]
    assert sum(shares) == pytest.approx(1)
    sizes.clear()
    whole = in_parts(compute, 1, IN_TURN)(Part(*batch))
    assert (float(whole.loss), int(sizes[0]), whole.gradients) == (45, 10, [None])

    graph = tf.Graph()
    with graph.as_default():
        batch = {"x": tf.compat.v1.placeholder(tf.float32, [None])}, tf.compat.v1.placeholder(tf.int64, [None])
        total = in_parts(compute, 3, IN_TURN)(Part(*batch)).loss
    for earlier, later in zip(ends[-3:], starts[-2:]):
        assert comes_after(later.op, earlier.op)
    with tf.compat.v1.Session(graph=graph) as session:
        for size in (3, 7, 10):
            assert session.run(total, {batch[0]["x"]: np.ones(size), batch[1]: np.ones(size)}) == size


def test_features_of_any_kind_are_cut_into_the_rows_of_the_parts():
    dense = tf.reshape(tf.range(1.0, 22.0), [7, 3]) * tf.constant([[1.0, 0.0, 1.0]])
    kinds = {"dense": dense, "sparse": tf.sparse.from_dense(dense), "ragged": tf.RaggedTensor.from_tensor(dense)}

    def cuts(features, labels):
        parts = [cut(Part(features, labels), number, 3, IN_TURN).features for number in range(3)]
        for part in parts:
            for kind, each in part.items():
                # The static shape, which a layer may need.
                assert each.shape[1:].as_list() == features[kind].shape[1:].as_list(), kind
            assert part["sparse"].shape[1:] == part["dense"].shape[1:] == [3]
        return parts

    def whole(parts, kind):
        found = [part[kind] for part in parts]
        assert [int(each.shape[0]) for each in found] == [2, 2, 3]
        return np.concatenate([_dense(each) for each in found])

    # With static size, and in a graph without.
    unknown = {name: tf.type_spec_from_value(each) for name, each in kinds.items()}
    unknown["dense"] = tf.TensorSpec([None, 3])
    unknown["sparse"] = tf.SparseTensorSpec([None, 3])
    traced = tf.function(cuts, input_signature=[unknown, tf.TensorSpec([None], tf.int64)])
    for make in (cuts, traced):
        parts = make(kinds, tf.range(7, dtype=tf.int64))
        for kind in kinds:
            np.testing.assert_array_equal(whole(parts, kind), dense)


def _dense(value: Any) -> np.ndarray:
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value).numpy()
    return (value.to_tensor() if isinstance(value, tf.RaggedTensor) else value).numpy()


def comes_after(operation: Any, earlier: Any) -> bool:
    """True if it depends on the other."""
    seen, left = set(), [operation]
    while left:
        each = left.pop()
        if each is earlier:
            return True
        if each not in seen:
            seen.add(each)
            left += [*(tensor.op for tensor in each.inputs), *each.control_inputs]
    return False


def train_step(parts: int, examples: int, parallel_parts: int = 1):
    """One step of Adam with a network whose penalties depend on the batch, and with rows that few examples touch."""
    tf.keras.utils.set_random_seed(3)
    layers, l2 = tf.keras.layers, tf.keras.regularizers.L2(0.01)
    network = tf.keras.Sequential(
        [
            layers.Embedding(6, 4, input_length=2),
            layers.Flatten(),
            layers.Dense(5, kernel_regularizer=l2, activity_regularizer=l2),
            layers.Dense(3),
        ]
    )
    network.build((None, 2))
    in_parts = {"gradient_accumulation": parts, "parallel_parts": parallel_parts}
    optimizer = {"name": "adam", "weight_decay": 0.1}
    classifier = _compile(network, global_batch_size=examples, optimizer=optimizer, **in_parts)
    random = np.random.default_rng(5)
    batch = {"x": random.integers(0, 6, [examples, 2])}, random.integers(0, 3, [examples])
    spec = {"x": tf.TensorSpec([None, 2], tf.int64)}, tf.TensorSpec([None], tf.int64)
    values = tf.function(classifier.train_step, input_signature=[spec])(batch)
    return classifier, {name: float(value) for name, value in values.items()}


def test_a_batch_of_fewer_examples_than_parts_is_refused():
    with pytest.raises(UserCodeError, match="each replica has 2 examples of a step, too few for 4 parts"):
        in_parts(lambda part: None, 4, IN_TURN)(Part({"image": tf.zeros([2, 3])}, tf.zeros([2], tf.int64)))


def test_parts_do_not_depend_on_each_other():
    starts, ends, firsts = [], [], []

    def compute(part):
        starts.append(part.features["x"])
        ends.append(tf.reduce_sum(part.features["x"]) * tf.cast(part.share, tf.float32))
        firsts.append(part.first)
        return Computed(ends[-1], tf.cast(tf.size(part.labels), tf.float32), [None])

    graph = tf.Graph()
    with graph.as_default():
        batch = {"x": tf.compat.v1.placeholder(tf.float32, [None])}, tf.compat.v1.placeholder(tf.int64, [None])
        whole = in_parts(in_parts(compute, 3, AT_ONCE), 2, IN_TURN)(Part(*batch))
    assert firsts == [True, False, False, False, False, False]
    for group in (range(3), range(3, 6)):
        for one in group:
            assert not any(comes_after(starts[one].op, ends[other].op) for other in group)
    # The second three start when the first are done.
    assert all(comes_after(starts[later].op, ends[earlier].op) for later in range(3, 6) for earlier in range(3))
    with tf.compat.v1.Session(graph=graph) as session:
        values = np.arange(7.0)
        found = session.run([whole.loss, whole.hits], {batch[0]["x"]: values, batch[1]: np.ones(7)})
    # 3 and 4 of 7 examples, in parts of 1, 1, 1 and of 1, 1, 2: each times its share of all seven.
    assert found == pytest.approx([(0 + 1 + 2 + 3 + 4 + 2 * (5 + 6)) / 7, 7])


@pytest.mark.parametrize(("parts", "parallel"), [(3, 1), (1, 2), (1, 7), (2, 3)])
def test_a_step_in_parts_updates_once_with_the_gradients_of_the_whole_batch(parts, parallel):
    one, reported = train_step(1, 7)
    other, of_parts = train_step(parts, 7, parallel_parts=parallel)
    assert of_parts == pytest.approx(reported, abs=1e-6)
    assert int(other.optimizer.iterations) == 1
    for expected, found in zip(one.optimizer.variables(), other.optimizer.variables()):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=expected.name)
    # Adam's m after one update is a tenth of the gradient.
    slots = [each.numpy() for each in other.optimizer.variables() if each.name.endswith("/m:0")]
    assert len(slots) == len(other.trainable_variables)
    assert all(np.abs(slot).max() > 1e-4 for slot in slots)


def _network(norm: Any) -> Any:
    layers = tf.keras.layers
    network = tf.keras.Sequential([tf.keras.Sequential([norm]), layers.Dropout(0.5), layers.Dense(3)])
    network.build((None, 2))
    return network


def _layer(kind: str) -> Any:
    layers = tf.keras.layers
    if kind == "batch norm":
        return layers.BatchNormalization(name="norm")
    if kind == "frozen batch norm":
        return layers.BatchNormalization(name="norm", trainable=False)
    if kind == "adapted":
        norm = layers.Normalization(name="norm")
        norm.adapt(np.arange(12.0).reshape(6, 2))
        return norm

    class Counting(layers.Layer):
        """Counts the examples that it has seen."""

        def build(self, shape: Any) -> None:
            self.count = self.add_weight("count", [], tf.float32, initializer="zeros", trainable=False)

        def call(self, inputs: Any) -> Any:
            """Counts."""
            if kind != "constant":
                self.count.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
            return inputs + self.count

    return Counting(name="norm", trainable=kind != "frozen counting")


def _compile(network: Any, **declared: Any) -> Any:
    section = TrainerSection.parse_obj({"train_steps": 9, "global_batch_size": 6, **declared})
    classifier = KerasClassifier(network, section)
    classifier.compile(optimizer=DeclaredOptimizer(section.optimizer, 9))
    return classifier


BATCH = {"x": np.ones([6, 2], np.float32)}, np.ones([6], np.int64)


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        ("batch norm", "the layer norm (BatchNormalization)"),
        ("counting", "the layer norm (Counting)"),
        ("frozen counting", "a layer"),
    ],
)
def test_a_step_that_assigns_to_a_state_is_refused_in_parts(kind, layer):
    classifier = _compile(_network(_layer(kind)), parallel_parts=2)
    with pytest.raises(UserCodeError) as caught:
        tf.function(classifier.train_step)(BATCH)
    assert f"trainer.parallel_parts: 2, and {layer} of the network updates its state by each batch" in str(caught.value)
    assert "set trainer.parallel_parts: 1" in str(caught.value)
    tf.function(_compile(_network(_layer(kind))).train_step)(BATCH)


@pytest.mark.parametrize("kind", ["frozen batch norm", "adapted", "constant"])
def test_a_layer_that_a_step_does_not_change_may_be_in_parts(kind):
    values = tf.function(_compile(_network(_layer(kind)), parallel_parts=2).train_step)(BATCH)
    assert float(values["loss"]) > 0


def test_each_part_has_operations_of_its_own_on_the_keras_paths():
    def products(**declared: Any) -> int:
        network = tf.keras.Sequential([tf.keras.layers.Dense(3)])
        network.build((None, 2))
        step = tf.function(_compile(network, **declared).train_step)
        return [each.type for each in step.get_concrete_function(BATCH).graph.get_operations()].count("MatMul")

    assert (whole := products()) > 1
    assert products(parallel_parts=3) == 3 * whole
    assert products(parallel_parts=3, gradient_accumulation=2) == 6 * whole


@pytest.mark.parametrize("kind", ["batch norm", "counting", "frozen counting"])
def test_a_state_of_an_estimators_graph_is_refused_in_parts(kind):
    model_fn = make_model_fn(lambda classes: tf.keras.Sequential([_layer(kind), tf.keras.layers.Dense(classes)]))
    params = {**PARAMS, "train_steps": 2, "global_batch_size": 6, "parallel_parts": 2}
    with pytest.raises(UserCodeError, match=r"parallel_parts: 2, and .* of the network updates"):
        call_model_fn(model_fn, "train", params, features={"image": BATCH[0]["x"]}, labels=BATCH[1])
