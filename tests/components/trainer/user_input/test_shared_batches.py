"""The distribution of a user's batches among replicas."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.user_input.rows import fill_short_batches
from tfx_estimator.components.trainer.user_input.shared_batches import hand_out_batches, share, split_batches
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
WORDS = [["a"], ["b", "c"], [], ["d"], ["e"], ["f", "g"], ["h"], [], ["i"], ["j"]]


def context(pipelines: int, pipeline: int, replicas: int) -> tf.distribute.InputContext:
    return tf.distribute.InputContext(pipelines, pipeline, replicas)


def batches(count: int, size: int, drop: bool = False) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).batch(size, drop_remainder=drop)


def read(dataset: tf.data.Dataset) -> list[list[int]]:
    return [batch.tolist() for batch in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("count", "size", "contexts", "parts"),
    [
        # The replicas of a process take equal parts of each batch in order; all workers' parts make up the batch.
        (8, 4, [(1, 0, 2)], [[[0, 1], [2, 3], [4, 5], [6, 7]]]),
        (*(16, 8, [(2, 0, 4), (2, 1, 4)]), [[[0, 1], [2, 3], [8, 9], [10, 11]], [[4, 5], [6, 7], [12, 13], [14, 15]]]),
        # The last batch of an epoch is truncated to equal parts, or left out.
        (11, 4, [(1, 0, 4)], [[[0], [1], [2], [3], [4], [5], [6], [7]]]),
        (7, 4, [(1, 0, 2)], [[[0, 1], [2, 3], [4], [5]]]),
    ],
)
def test_replicas_take_equal_parts_of_each_batch(count, size, contexts, parts):
    assert [read(split_batches(batches(count, size), context(*each))) for each in contexts] == parts


@pytest.mark.parametrize(
    ("count", "size", "replicas", "sizes"), [(11, 4, 3, [1, 1, 2, 1, 1, 2, 1, 1, 1]), (101, 100, 2, [49, 50, 1, 1])]
)
def test_an_evaluation_loses_no_example_and_every_step_has_a_part_for_each_replica(count, size, replicas, sizes):
    parts = read(split_batches(batches(count, size), context(1, 0, replicas), training=False))
    assert [len(part) for part in parts] == sizes
    assert [each for part in parts for each in part] == list(range(count))


@pytest.mark.parametrize(
    ("count", "size", "least", "sizes"),
    [
        (101, 100, 2, [99, 2]),
        (11, 4, 3, [4, 4, 3]),
        (11, 4, 4, [4, 7]),
        (7, 1, 2, [2, 2, 3]),
        (1, 4, 2, [1]),
        (0, 4, 2, []),
    ],
)
def test_a_short_batch_takes_examples_of_the_one_before_it(count, size, least, sizes):
    filled = read(fill_short_batches(batches(count, size), least))
    assert [len(batch) for batch in filled] == sizes
    assert [each for batch in filled for each in batch] == list(range(count))


@pytest.mark.parametrize(
    ("size", "share", "parts"),
    [
        (3, lambda dataset: fill_short_batches(dataset, 2), [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (4, lambda dataset: split_batches(dataset, context(1, 0, 2)), [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9]]),
        (2, lambda dataset: hand_out_batches(dataset, 2), [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9]]),
    ],
    ids=["filled", "split", "handed out"],
)
def test_sparse_ragged_and_nested_tensors_are_split_too(size, share, parts):
    ragged = tf.ragged.constant(WORDS)
    vector = {"vector": tf.reshape(tf.range(30), [10, 3])}
    features = {"ragged": ragged, "sparse": ragged.to_sparse(), "nested": vector}
    dataset = tf.data.Dataset.from_tensor_slices((features, tf.range(10))).batch(size)
    seen = []
    for element, labels in share(dataset.map(lambda each, labels: ({**each, "none": None}, labels))):
        rows = labels.numpy().tolist()
        words = [[word.encode() for word in WORDS[row]] for row in rows]
        assert element["ragged"].to_list() == words
        assert tf.RaggedTensor.from_sparse(element["sparse"]).to_list() == words
        assert element["sparse"].dense_shape[0] == len(rows)
        assert element["nested"]["vector"][:, 0].numpy().tolist() == [3 * row for row in rows]
        assert element["none"] is None
        seen.append(rows)
    assert seen == parts


def test_workers_of_parameter_servers_take_whole_batches_in_turn():
    workers = [read(split_batches(batches(10, 2), context(3, worker, 1), in_step=False)) for worker in range(3)]
    assert workers == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5]]]
    # Two GPUs of one worker train synchronously.
    assert read(split_batches(batches(16, 4), context(2, 1, 2), in_step=False)) == [[4, 5], [6, 7], [12, 13], [14, 15]]


def test_features_without_labels_are_split():
    (features, labels), *_ = split_batches(batches(4, 4).map(lambda each: ({"x": each}, None)), context(1, 0, 2))
    assert (features["x"].numpy().tolist(), labels) == ([0, 1], None)


def test_a_known_batch_size_stays_known():
    assert split_batches(batches(8, 4, drop=True), context(1, 0, 2)).element_spec.shape == [2]
    assert split_batches(batches(8, 4), context(1, 0, 2)).element_spec.shape == [None]


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


def test_an_input_fn_with_a_context_makes_each_replicas_batches():
    def input_fn(mode, input_context=None):
        size = 100 if mode == TRAIN else input_context.get_per_replica_batch_size(100)
        return batches(403, size).shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    train = share(input_fn)(mode=TRAIN, params={}, config=None, input_context=context(2, 1, 4))
    assert [len(batch) for batch in read(train)] == [100, 100]
    # Nine batches for two replicas: TensorFlow would leave out the last one, of three examples.
    parts = read(share(input_fn, training=False)(mode=EVAL, params={}, config=None, input_context=context(1, 0, 2)))
    assert [each for part in parts for each in part] == list(range(403))
    assert [len(part) for part in parts] == [50] * 8 + [1, 2]


def whole_batches() -> tf.data.Dataset:
    return batches(10, 4)


def test_without_a_context_per_replica_gives_each_replica_whole_batches():
    def shared(pipeline: int, **how: Any) -> list[list[int]]:
        made = share(whole_batches, **how)
        return read(made(mode=TRAIN, params={}, config=None, input_context=context(2, pipeline, 2)))

    assert [shared(worker, input_batch="per_replica") for worker in range(2)] == [read(whole_batches())] * 2
    assert [shared(worker)[0] for worker in range(2)] == [[0, 1], [2, 3]]
    evaluated = share(whole_batches, training=False, input_batch="per_replica")
    parts = read(evaluated(mode=EVAL, params={}, config=None, input_context=context(1, 0, 2)))
    assert parts == [[0, 1, 2, 3], [4, 5, 6, 7], [8], [9]]


def test_workers_that_each_read_all_examples_shuffle_them_differently():
    def first(pipeline: int) -> list[int]:
        with tf.Graph().as_default() as graph:
            graph.seed = 1
            shared = share(lambda: tf.data.Dataset.range(100).shuffle(100).batch(4), input_batch="per_replica")
            dataset = shared(mode=TRAIN, params={}, config=None, input_context=context(2, pipeline, 2))
            batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
            assert graph.seed == 1
            with tf.compat.v1.Session() as session:
                return session.run(batch).tolist()

    assert first(0) != first(1)
    assert (first(0), first(1)) == (first(0), first(1))


def test_the_built_in_input_fn_shares_its_evaluation_itself():
    reader = ExampleReader([], [], {}, lambda each: each, 4, 4, shuffle_buffer=4, seed=1)
    assert share(reader.input_fn, training=False) == reader.input_fn


def test_with_one_replica_an_input_fn_may_return_anything():
    assert share(tensors)(mode=TRAIN, params={}, config=None)[1].numpy().tolist() == [1] * 4
    # A strategy calls a function that it gets in place of a data set.
    for in_step, pipelines in ((True, 1), (False, 2)):
        made = share(tensors, in_step)(mode=TRAIN, params={}, config=None, input_context=context(pipelines, 0, 1))
        assert made()[1].numpy().tolist() == [1] * 4
    # Workers of parameter servers take elements of any kind.
    worker = share(lambda: tf.data.Dataset.range(4), in_step=False)
    taken = worker(mode=TRAIN, params={}, config=None, input_context=context(2, 1, 1))
    assert list(taken.as_numpy_iterator()) == [1, 3]


@pytest.mark.parametrize(
    ("pick", "last"),
    [
        (lambda features, label: (features, label), ({"x": [6, 7], "words": [b"6", b"7"]}, [16, 17])),
        (lambda features, label: ({"x": label, "none": None}, features["x"]), ({"x": [16, 17]}, [6, 7])),
        (lambda features, label: [{"words": features["words"]}, label], ({"words": [b"6", b"7"]}, [16, 17])),
    ],
    ids=["all", "some", "list"],
)
def test_the_elements_of_a_one_shot_iterator_are_shared_as_its_data_set(pick, last):
    def input_fn():
        numbers = tf.data.Dataset.range(8).map(lambda x: ({"x": x, "words": tf.strings.as_string(x)}, x + 10))
        element = tf.compat.v1.data.make_one_shot_iterator(numbers.batch(4)).get_next()
        return pick(*element)

    with tf.Graph().as_default():
        dataset = share(input_fn)(mode=TRAIN, params={}, config=None, input_context=context(1, 0, 2))
        features, labels = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        found = {name: value for name, value in features.items() if value is not None}
        with tf.compat.v1.Session() as session:
            parts = [session.run((found, labels)) for _ in range(4)]
    read_last = ({name: value.tolist() for name, value in parts[-1][0].items()}, parts[-1][1].tolist())
    assert read_last == last


def tensors() -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"x": tf.ones([4])}, tf.ones([4])


@pytest.mark.parametrize(
    ("input_fn", "mode", "message"),
    [
        (
            tensors,
            TRAIN,
            "TrainSpec.input_fn returns (dict, EagerTensor), and trainer.distribution declares a strategy",
        ),
        (lambda: None, EVAL, "EvalSpec.input_fn returns NoneType"),
        (lambda: batches(9, 3, drop=True), TRAIN, "makes batches of 3 examples, which do not divide evenly among 2"),
    ],
)
def test_batches_that_cannot_be_split_are_refused(input_fn, mode, message):
    with pytest.raises(UserCodeError, match=re.escape(message)):
        share(input_fn)(mode=mode, params={}, config=None, input_context=context(1, 0, 2))


@pytest.mark.parametrize(
    ("make", "training", "message"),
    [
        (
            lambda: batches(10, 5),
            True,
            "the first batch of TrainSpec.input_fn does not divide evenly among the 2 replicas",
        ),
        (lambda: batches(1, 4), False, "EvalSpec.input_fn makes fewer examples than the 2 replicas"),
        (
            lambda: tf.data.Dataset.zip((batches(8, 4), batches(6, 2))),
            True,
            "`features` and `labels` differ in their first dimension",
        ),
        # A known first dimension may be a table's or a sequence's instead of the batch's.
        (
            lambda: batches(8, 4).map(lambda each: {"table": tf.ones([6, 5]), "x": each}),
            True,
            "`table` and `x` differ in their first dimension",
        ),
    ],
)
def test_errors_that_only_show_in_the_data_are_reported_unchanged(make, training, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)):
        list(split_batches(make(), context(1, 0, 2), training=training))
