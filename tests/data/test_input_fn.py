"""input_fn, on real tf.Examples."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.unit

SIZES = (40, 33, 27, 50)  # examples per file
TOTAL = sum(SIZES)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four files; the label of an example is its number, and each of its four pixels too."""
    import tensorflow as tf

    folder: Path = tmp_path_factory.mktemp("examples")
    number = 0
    for index, size in enumerate(SIZES):
        with tf.io.TFRecordWriter(str(folder / f"data_tfrecord-{index:05d}-of-00004")) as writer:
            for _ in range(size):
                example = tf.train.Example()
                example.features.feature["image"].bytes_list.value.append(bytes([number] * 4))
                example.features.feature["label"].int64_list.value.append(number)
                writer.write(example.SerializeToString())
                number += 1
    return sorted(str(path) for path in folder.iterdir())


@pytest.fixture(params=[0, 1 << 20], ids=["streamed", "resident"])
def reader(files, request: pytest.FixtureRequest):
    import tensorflow as tf

    from data.input_fn import ExampleReader
    from data.preprocessing import decode_images

    def make(**values):
        settings = {
            "train_files": files,
            "eval_files": files,
            "feature_spec": {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
            },
            "transform": lambda raw: {**raw, "image": tf.cast(decode_images(raw["image"], (2, 2, 1)), tf.float32)},
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "shuffle_buffer": 64,
            "seed": 7,
            "resident_bytes": request.param,
            **values,
        }
        return ExampleReader(**settings)

    return make


def labels(dataset, batches: int | None = None) -> list[list[int]]:
    return [label.tolist() for _, label in dataset.take(batches or -1).as_numpy_iterator()]


def flat(batches: list[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def context(pipelines: int, index: int):
    import tensorflow as tf

    return tf.distribute.InputContext(pipelines, index, num_replicas_in_sync=pipelines)


def test_evaluation_reads_every_example_exactly_once(reader):
    assert sorted(flat(labels(reader().input_fn("eval")))) == list(range(TOTAL))


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


@pytest.mark.parametrize("pipelines", [1, 2, 3, 4])
def test_input_pipelines_are_disjoint_and_complete(reader, pipelines):
    seen = [
        flat(labels(reader(eval_batch_size=12).input_fn("eval", context(pipelines, index))))
        for index in range(pipelines)
    ]
    counts = collections.Counter(label for part in seen for label in part)
    assert counts == dict.fromkeys(range(TOTAL), 1)


@pytest.mark.parametrize("pipelines", [1, 2, 4])
def test_each_input_pipeline_gets_its_part_of_the_global_batch(reader, pipelines):
    for mode in ("train", "eval"):
        batch = labels(reader().input_fn(mode, context(pipelines, 0)), 1)[0]
        assert len(batch) == 16 // pipelines


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
