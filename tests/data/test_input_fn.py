"""input_fn, on real tf.Examples."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.input_pipelines import SIZES, TOTAL, context, flat, labels

pytestmark = pytest.mark.unit


def test_evaluation_reads_every_example_exactly_once(make_reader):
    assert sorted(flat(labels(make_reader().input_fn("eval")))) == list(range(TOTAL))


def test_images_are_those_of_their_labels(reader):
    for features, label in reader().input_fn("train").take(10).as_numpy_iterator():
        assert features["image"].shape == (16, 2, 2, 1)
        np.testing.assert_array_equal(features["image"][:, 0, 0, 0], label)


def test_one_epoch_of_training_has_every_example_once_in_another_order(reader):
    seen = flat(labels(reader(train_batch_size=TOTAL).input_fn("train"), 1))
    assert sorted(seen) == list(range(TOTAL))
    assert seen != list(range(TOTAL))


def test_training_goes_on_after_the_last_example_in_a_new_order(reader):
    first, second = labels(reader(train_batch_size=TOTAL).input_fn("train"), 2)
    assert sorted(first) == sorted(second)
    assert first != second


def test_the_same_seed_gives_the_same_order_and_another_seed_another(reader):
    once = labels(reader().input_fn("train"), 12)
    assert labels(reader().input_fn("train"), 12) == once
    assert labels(reader(seed=8).input_fn("train"), 12) != once


@pytest.mark.parametrize("step", [1, 5, 23])
def test_a_resumed_run_goes_on_where_the_step_says(reader, step):
    straight = labels(reader().input_fn("train"), step + 10)
    resumed = labels(reader(start_step=lambda: step).input_fn("train"), 10)
    assert resumed == straight[step:]


def test_a_graph_that_is_run_again_goes_on_where_the_step_is_by_then(reader):
    import tensorflow as tf

    step = tf.Variable(0, dtype=tf.int64)

    # As the workers of TensorFlow 2's parameter servers do: traced once, and run by each that is started.
    @tf.function
    def begin(number):
        batches = reader(start_step=step.read_value).input_fn("train", context(2, number))
        return batches.map(lambda _, label: label).batch(3).take(1).get_single_element()

    for now, number in ((0, 0), (5, 1), (23, 0), (23, 1)):
        step.assign(now)
        wanted = labels(reader(start_step=lambda now=now: now).input_fn("train", context(2, number)), 3)
        assert begin(tf.constant(number, tf.int64)).numpy().tolist() == wanted


def test_training_batches_are_all_full(reader):
    assert {len(batch) for batch in labels(reader().input_fn("train"), 40)} == {16}


def test_files_in_memory_are_shuffled_as_a_whole(files, reader):
    one_file = reader(train_files=files[:1], train_batch_size=SIZES[0], shuffle_buffer=1)
    seen = labels(one_file.input_fn("train"), 2)
    if one_file.resident_bytes:
        assert seen[0] != sorted(seen[0])
        assert seen[0] != seen[1]
    else:
        assert seen[0] == sorted(seen[0])
