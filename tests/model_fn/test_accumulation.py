"""A batch in parts; that every path trains so under every strategy is shown in tests/equivalence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit


def test_parts_are_of_equal_size_to_within_one_and_come_in_turn():
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import Computed, in_turn

    sizes, shares, begun, done = [], [], [], []

    def compute(part):
        sizes.append(tf.size(part.labels))
        shares.append(part.share)
        begun.append(part.features["x"])
        done.append(tf.reduce_sum(part.features["x"]))
        return Computed(done[-1], tf.constant(0.0), [None])

    batch = {"x": tf.range(10.0)}, tf.range(10, dtype=tf.int64)
    assert float(in_turn(compute, *batch, 4).loss) == 45
    assert [int(size) for size in sizes] == [2, 3, 2, 3]
    assert sum(shares) == pytest.approx(1)
    sizes.clear()
    whole = in_turn(compute, *batch, 1)
    assert (float(whole.loss), int(sizes[0]), whole.gradients) == (45, 10, [None])

    graph = tf.Graph()
    with graph.as_default():
        batch = {"x": tf.compat.v1.placeholder(tf.float32, [None])}, tf.compat.v1.placeholder(tf.int64, [None])
        total = in_turn(compute, *batch, 3).loss
    for earlier, later in zip(done[-3:], begun[-2:]):
        assert comes_after(later.op, earlier.op)
    with tf.compat.v1.Session(graph=graph) as session:
        for size in (3, 7, 10):
            assert session.run(total, {batch[0]["x"]: np.ones(size), batch[1]: np.ones(size)}) == size


def test_features_of_any_kind_are_cut_into_the_rows_of_the_parts():
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import cut

    dense = tf.reshape(tf.range(1.0, 22.0), [7, 3]) * tf.constant([[1.0, 0.0, 1.0]])
    kinds = {"dense": dense, "sparse": tf.sparse.from_dense(dense), "ragged": tf.RaggedTensor.from_tensor(dense)}

    def cuts(features, labels):
        parts = [cut(features, labels, number, 3, "trainer.gradient_accumulation").features for number in range(3)]
        for part in parts:
            for kind, each in part.items():
                # What a layer may need to know before any step.
                assert each.shape[1:].as_list() == features[kind].shape[1:].as_list(), kind
            assert part["sparse"].shape[1:] == part["dense"].shape[1:] == [3]
        return parts

    def whole(parts, kind):
        found = [part[kind] for part in parts]
        assert [int(each.shape[0]) for each in found] == [2, 2, 3]
        return np.concatenate([_dense(each) for each in found])

    # Of a known size, and in a graph that does not know it.
    unknown = {name: tf.type_spec_from_value(each) for name, each in kinds.items()}
    unknown["dense"] = tf.TensorSpec([None, 3])
    unknown["sparse"] = tf.SparseTensorSpec([None, 3])
    traced = tf.function(cuts, input_signature=[unknown, tf.TensorSpec([None], tf.int64)])
    for make in (cuts, traced):
        parts = make(kinds, tf.range(7, dtype=tf.int64))
        for kind in kinds:
            np.testing.assert_array_equal(whole(parts, kind), dense)


def _dense(value: Any) -> np.ndarray:
    import tensorflow as tf

    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value).numpy()
    return (value.to_tensor() if isinstance(value, tf.RaggedTensor) else value).numpy()


def comes_after(operation: Any, earlier: Any) -> bool:
    """Is there a way from it back to the other."""
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
    import tensorflow as tf

    from tfx_estimator.model_fn.keras_classifier import KerasClassifier
    from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer
    from tfx_estimator.pipeline.config.trainer import TrainerSection

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
    section = TrainerSection(
        train_steps=9,
        global_batch_size=examples,
        gradient_accumulation=parts,
        parallel_parts=parallel_parts,
        optimizer={"name": "adam", "weight_decay": 0.1},
    )
    classifier = KerasClassifier(network, section)
    classifier.compile(optimizer=make_keras_optimizer(section.optimizer, 9))
    random = np.random.default_rng(5)
    batch = {"x": random.integers(0, 6, [examples, 2])}, random.integers(0, 3, [examples])
    spec = {"x": tf.TensorSpec([None, 2], tf.int64)}, tf.TensorSpec([None], tf.int64)
    values = tf.function(classifier.train_step, input_signature=[spec])(batch)
    return classifier, {name: float(value) for name, value in values.items()}


def test_a_short_batch_in_parts_updates_once_with_the_gradients_of_the_whole():
    (one, reported), (other, of_parts) = (train_step(parts, 7) for parts in (1, 3))
    assert of_parts == pytest.approx(reported, abs=1e-6)
    assert int(other.optimizer.iterations) == 1
    for expected, found in zip(one.optimizer.variables(), other.optimizer.variables()):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=expected.name)
    # Adam's m after one update is a tenth of the gradient.
    slots = [each.numpy() for each in other.optimizer.variables() if each.name.endswith("/m:0")]
    assert len(slots) == len(other.trainable_variables)
    assert all(np.abs(slot).max() > 1e-4 for slot in slots)


@pytest.mark.parametrize("graph", [False, True])
def test_moving_averages_follow_each_part_in_turn(graph):
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import Computed, in_turn
    from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization

    values = np.arange(12, dtype=np.float32).reshape(6, 2) ** 2

    def train():
        norm = SynchronizedBatchNormalization(momentum=0.5)
        norm.build(tf.TensorShape([None, 2]))

        def compute(part):
            outputs = norm(part.features["x"], training=True)
            updates = norm.get_updates_for(part.features["x"]) if graph else ()
            return Computed(tf.reduce_sum(outputs), tf.constant(0.0), [], updates)

        batch = {"x": tf.constant(values)}, tf.range(6, dtype=tf.int64)
        if not graph:
            return norm, tf.function(lambda: in_turn(compute, *batch, 3).loss)()
        return norm, in_turn(compute, *batch, 3)

    if graph:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            norm, whole = train()
            session.run(tf.compat.v1.global_variables_initializer())
            session.run([whole.loss, *whole.updates])
            found = session.run(norm.moving_mean)
    else:
        norm, _ = train()
        found = norm.moving_mean.numpy()
    expected = np.zeros(2)
    for part in np.split(values, 3):
        expected = 0.5 * expected + 0.5 * part.mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_is_no_network_is_refused():
    from tfx_estimator.model_fn.accumulation import refuse_accumulation

    refuse_accumulation(1, "mine:net", "returns a compiled model")
    with pytest.raises(UserCodeError, match="gradient_accumulation: 2, and 'mine:net' returns a compiled model"):
        refuse_accumulation(2, "mine:net", "returns a compiled model")


def test_a_batch_of_fewer_examples_than_parts_is_refused():
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import in_turn

    with pytest.raises(UserCodeError, match="each replica has 2 examples of a step, too few for 4 parts"):
        in_turn(lambda part: None, {"image": tf.zeros([2, 3])}, tf.zeros([2], tf.int64), 4)
