"""input_fn, on real tf.Examples; augmented images do not depend on the batches, nor on restarts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.artifacts import example, write_records
from tests.data.input_pipelines import RESIDENT, SIZES, TOTAL, context, flat, labels
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.data.packing import packing_of
from tfx_estimator.pipeline.config.trainer import TrainerSection


def test_evaluation_reads_every_example_exactly_once(make_reader):
    assert sorted(flat(labels(make_reader().input_fn("eval")))) == list(range(TOTAL))


def test_images_belong_to_their_labels(reader):
    for features, label in reader().input_fn("train").take(10).as_numpy_iterator():
        assert features["image"].shape == (16, 2, 2, 1)
        np.testing.assert_array_equal(features["image"][:, 0, 0, 0], label)


def test_the_same_seed_gives_the_same_order_and_another_seed_another(reader):
    once = labels(reader().input_fn("train"), 12)
    assert labels(reader().input_fn("train"), 12) == once
    assert labels(reader(seed=8).input_fn("train"), 12) != once


def test_a_graph_that_runs_again_continues_at_the_current_step(reader):
    import tensorflow as tf

    step = tf.Variable(0, dtype=tf.int64)

    # Like the workers of TensorFlow 2's parameter servers: traced once, and run by each worker that starts.
    @tf.function
    def begin(number):
        batches = reader(start_step=step.read_value).input_fn("train", context(2, number))
        return batches.map(lambda _, label: label).batch(3).take(1).get_single_element()

    for now, number in ((0, 0), (5, 1), (23, 0), (23, 1)):
        step.assign(now)
        wanted = labels(reader(start_step=lambda now=now: now).input_fn("train", context(2, number)), 3)
        assert begin(tf.constant(number, tf.int64)).numpy().tolist() == wanted


def test_files_in_memory_are_shuffled_as_a_whole(files, reader):
    one_file = reader(train_files=files[:1], train_batch_size=SIZES[0], shuffle_buffer=1)
    seen = labels(one_file.input_fn("train"), 2)
    if one_file.resident_bytes:
        assert seen[0] != sorted(seen[0])
        assert seen[0] != seen[1]
    else:
        assert seen[0] == sorted(seen[0])


@pytest.mark.parametrize("resident_bytes", RESIDENT.values(), ids=RESIDENT)
def test_packed_columns_are_what_parsing_gives(tmp_path, resident_bytes):
    import tensorflow as tf

    fixed = tf.io.FixedLenFeature
    numbers = {
        "number": fixed([], tf.float32),
        "pair": fixed([2], tf.float32, [0.5, 1.5]),
        "grid": fixed([2, 2], tf.int64),
        "label": fixed([], tf.int64),
    }
    words = {**numbers, "word": fixed([], tf.string, "none")}
    assert packing_of(numbers)
    assert not packing_of(words)
    rows = [
        {"number": number / 7, "grid": [number] * 4, "label": number} | ({"pair": [1.0, number]} if number % 3 else {})
        for number in range(100)
    ]
    path = write_records(tmp_path / "examples", [example(**row) for row in rows])

    def batches(spec, count: int, index: int) -> list:
        reader = ExampleReader([path], [], spec, None, 12, 1, 32, 5, resident_bytes, lambda: 3)
        return list(reader.input_fn("train", context(count, index)).take(20).as_numpy_iterator())

    for pipeline in ((1, 0), (2, 0), (2, 1)):
        for (packed, label), (parsed, same) in zip(batches(numbers, *pipeline), batches(words, *pipeline), strict=True):
            assert label.tolist() == same.tolist()
            assert parsed.pop("word").tolist() == [b"none"] * len(label)
            assert packed.keys() == parsed.keys()
            for name, value in packed.items():
                np.testing.assert_array_equal(value, parsed[name])
            np.testing.assert_array_equal(packed["grid"][:, 1, 0], label)


# The examples' images are of a single colour; an added value identifies them.
AUGMENT = TrainerSection.parse_obj({"augment": [{"gaussian_noise": {"stddev": 0.1}}, "random_brightness"]}).augment


def varied(dataset, batches: int) -> list[tuple[int, bytes]]:
    """Returns label and image of each example."""
    return [
        (int(number), image.tobytes())
        for features, label in dataset.take(batches).as_numpy_iterator()
        for image, number in zip(features["image"], label, strict=True)
    ]


@pytest.fixture(scope="module")
def alone(reader) -> list[tuple[int, bytes]]:
    """More than two epochs of augmented images on one device."""
    return varied(reader(train_batch_size=24, augment=AUGMENT).input_fn("train"), 15)


def test_images_are_varied_in_the_order_of_those_that_are_not(alone, order):
    assert [number for number, _ in alone] == order
    shifts = [np.frombuffer(image, np.float32) - number for number, image in alone]
    assert 0 < np.abs(shifts).max() < 1
    assert len(np.unique(shifts)) > 0.99 * np.size(shifts)


def test_an_example_is_varied_anew_in_each_epoch(alone):
    assert len(set(alone)) == len(alone) > 2 * TOTAL


@pytest.mark.parametrize(("pipelines", "batch", "step"), [(1, 40, 3), (2, 16, 0), (3, 24, 5)])
def test_images_are_varied_alike_in_any_batches_pipelines_and_resumed_runs(reader, alone, pipelines, batch, step):
    augmented = reader(train_batch_size=batch, augment=AUGMENT, start_step=lambda: step)
    steps = (len(alone) // batch) - step
    for index in range(pipelines):
        own = varied(augmented.input_fn("train", context(pipelines, index)), steps)
        assert own == alone[step * batch + index :: pipelines][: len(own)]
        assert len(own) == steps * batch // pipelines


def test_pipelines_with_files_of_their_own_vary_by_numbers_of_their_own(reader):
    augmented = {"sharding": "file", "augment": AUGMENT, "train_batch_size": 16}
    shares = [varied(reader(**augmented).input_fn("train", context(2, index)), 8) for index in range(2)]
    first, second = ([np.frombuffer(image, np.float32) - number for number, image in share] for share in shares)
    assert np.abs(np.array(first) - np.array(second)).min(axis=1).max() > 0.01
    resumed = reader(**augmented, start_step=lambda: 5).input_fn("train", context(2, 1))
    assert varied(resumed, 3) == shares[1][5 * 8 :]


def test_evaluation_varies_nothing(make_reader):
    one, other = make_reader(), make_reader(augment=AUGMENT)
    assert varied(one.input_fn("eval"), -1) == varied(other.input_fn("eval"), -1)
