"""How the batches of a user's input_fn are shared among replicas."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer.foreign_input import own_parts, share
from pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit

TRAIN, EVAL = tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL
WORDS = [["a"], ["b", "c"], [], ["d"], ["e"], ["f", "g"], ["h"], [], ["i"], ["j"]]


def context(pipelines: int, pipeline: int, replicas: int) -> tf.distribute.InputContext:
    return tf.distribute.InputContext(pipelines, pipeline, replicas)


def batches(count: int, size: int, drop: bool = False) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).batch(size, drop_remainder=drop)


def read(dataset: tf.data.Dataset) -> list[list[int]]:
    return [batch.tolist() for batch in dataset.as_numpy_iterator()]


def test_the_replicas_of_one_process_take_equal_parts_of_each_batch_in_turn():
    assert read(own_parts(batches(8, 4), context(1, 0, 2))) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_the_parts_of_all_workers_are_the_batch():
    parts = [read(own_parts(batches(16, 8), context(2, worker, 4))) for worker in range(2)]
    assert parts == [[[0, 1], [2, 3], [8, 9], [10, 11]], [[4, 5], [6, 7], [12, 13], [14, 15]]]


def test_the_last_batch_of_an_epoch_is_cut_to_equal_parts_or_left_out():
    assert read(own_parts(batches(11, 4), context(1, 0, 4))) == [[0], [1], [2], [3], [4], [5], [6], [7]]
    assert read(own_parts(batches(7, 4), context(1, 0, 2))) == [[0, 1], [2, 3], [4], [5]]


def test_an_evaluation_loses_no_example_and_every_step_has_a_part_for_each_replica():
    parts = read(own_parts(batches(11, 4), context(1, 0, 3), training=False))
    assert [len(part) for part in parts] == [1, 1, 2, 1, 1, 2, 1, 1, 1]
    assert [each for part in parts for each in part] == list(range(11))


def test_workers_of_parameter_servers_take_whole_batches_in_turn():
    workers = [read(own_parts(batches(10, 2), context(3, worker, 1), in_step=False)) for worker in range(3)]
    assert workers == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5]]]
    # Two GPUs of one worker train in step.
    assert read(own_parts(batches(16, 4), context(2, 1, 2), in_step=False)) == [[4, 5], [6, 7], [12, 13], [14, 15]]


def test_sparse_ragged_and_nested_tensors_are_split_alike():
    ragged = tf.ragged.constant(WORDS)
    features = {
        "ragged": ragged,
        "sparse": ragged.to_sparse(),
        "nested": {"vector": tf.reshape(tf.range(30), [10, 3]), "number": tf.range(10)},
    }
    dataset = tf.data.Dataset.from_tensor_slices((features, tf.range(10))).batch(4)
    seen: list[int] = []
    for element, labels in own_parts(dataset, context(1, 0, 2)):
        rows = labels.numpy().tolist()
        words = [[word.encode() for word in WORDS[row]] for row in rows]
        assert element["ragged"].to_list() == words
        assert tf.RaggedTensor.from_sparse(element["sparse"]).to_list() == words
        assert element["sparse"].dense_shape[0] == len(rows)
        np.testing.assert_array_equal(element["nested"]["vector"][:, 0], [3 * row for row in rows])
        assert element["nested"]["number"].numpy().tolist() == rows
        seen += rows
    assert seen == list(range(10))


def test_features_without_labels_are_split():
    (features, labels), *_ = own_parts(batches(4, 4).map(lambda each: ({"x": each}, None)), context(1, 0, 2))
    assert (features["x"].numpy().tolist(), labels) == ([0, 1], None)


def test_a_known_batch_size_stays_known():
    assert own_parts(batches(8, 4, drop=True), context(1, 0, 2)).element_spec.shape == [2]
    assert own_parts(batches(8, 4), context(1, 0, 2)).element_spec.shape == [None]


def test_an_input_fn_keeps_its_arguments():
    heard: dict[str, Any] = {}

    def input_fn(params, mode):
        heard.update(params=params, mode=mode)
        return batches(4, 2)

    shared = share(input_fn)
    assert read(shared(mode=TRAIN, params={"a": 1}, config=None, input_context=context(1, 0, 2))) == [
        [0],
        [1],
        [2],
        [3],
    ]
    assert heard == {"params": {"a": 1}, "mode": TRAIN}
    # Without a strategy.
    assert read(shared(mode=TRAIN, params={}, config=None)) == [[0, 1], [2, 3]]


def test_an_input_fn_that_takes_the_context_shares_by_itself():
    def input_fn(mode, input_context=None):
        return batches(4, 2)

    assert share(input_fn) is input_fn


def tensors() -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"x": tf.ones([4])}, tf.ones([4])


def unbatched() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(({"x": tf.ones([4, 2])}, tf.ones([4])))


def without_batch() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(({"x": tf.ones([784])}, tf.ones([1])))


@pytest.mark.parametrize(
    ("input_fn", "told"),
    [
        (tensors, "TrainSpec.input_fn returns (dict, EagerTensor), and trainer.distribution declares a strategy"),
        (lambda: None, "TrainSpec.input_fn returns NoneType"),
        (unbatched, "`labels` is a scalar in each element"),
        (without_batch, "differ in their first dimension: `features/x` has 784, `labels` has 1"),
        (lambda: batches(9, 3, drop=True), "makes batches of 3 examples, which do not divide evenly among 2 replicas"),
    ],
)
def test_what_cannot_be_shared_is_refused(input_fn, told):
    with pytest.raises(UserCodeError, match=re.escape(told)):
        share(input_fn)(mode=TRAIN, params={}, config=None, input_context=context(1, 0, 2))


def test_an_eval_spec_is_named_as_such():
    with pytest.raises(UserCodeError, match=re.escape("EvalSpec.input_fn returns")):
        share(tensors, training=False)(mode=EVAL, params={}, config=None, input_context=context(1, 0, 2))


@pytest.mark.parametrize(
    ("make", "training", "told"),
    [
        (
            lambda: batches(10, 5),
            True,
            "the first batch of TrainSpec.input_fn does not divide evenly among the 2 replicas",
        ),
        (lambda: batches(5, 4), False, "EvalSpec.input_fn makes a batch of fewer examples than the 2 replicas"),
        (
            lambda: tf.data.Dataset.zip((batches(8, 4), batches(6, 2))),
            True,
            "`features` and `labels` differ in their first dimension",
        ),
    ],
)
def test_what_shows_only_in_the_data_is_told_as_it_is(make, training, told):
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(told)):
        list(own_parts(make(), context(1, 0, 2), training=training))
