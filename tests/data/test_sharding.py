"""The share of each input pipeline in a global batch, and in the files."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tests.data.input_pipelines import PIPELINES, SIZES, TOTAL, context, flat, global_batches, labels, one_device, write
from tests.refusals import refused
from tfx_estimator.data.digits import upscale
from tfx_estimator.data.sharding import batch_sizes, own_files
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError


# One, and numbers that divide a batch of 24 or do not.
@pytest.mark.parametrize(
    "pipelines", [each if each in (1, 3, 7) else pytest.param(each, marks=pytest.mark.long) for each in PIPELINES]
)
def test_element_sharding_gives_the_global_batches_of_one_device(reader, order, pipelines):
    size = 24 // pipelines * pipelines
    steps = 2 * TOTAL // size + 1
    batches = global_batches(reader(train_batch_size=size), pipelines, steps)
    assert batches == [sorted(order[step * size : (step + 1) * size]) for step in range(steps)]
    seen: collections.Counter[int] = collections.Counter(dict.fromkeys(range(TOTAL), 0))
    for batch in batches:  # no example is repeated before all others are read
        seen.update(batch)
        assert max(seen.values()) - min(seen.values()) <= 1
    assert min(seen.values()) == 2


@pytest.mark.parametrize(("pipelines", "replicas", "step"), [(2, 2, 0), (2, 1, 5), (3, 2, 23)])
def test_pipelines_with_several_replicas_start_where_one_device_would_be(reader, pipelines, replicas, step):
    settings = {"train_batch_size": 24}
    resumed = global_batches(reader(start_step=lambda: step, **settings), pipelines, 13, replicas)
    assert resumed == one_device(reader(**settings), step + 13)[step:]


def test_pipelines_of_differing_tf1_graphs_agree_on_the_order(reader):
    """The graphs of tasks may have different random ops, for example the chief's."""

    def read(input_context, ops_before: int) -> list[list[int]]:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.random.set_random_seed(3)
            for _ in range(ops_before):
                tf.random.uniform([])
            iterator = tf.compat.v1.data.make_initializable_iterator(reader().input_fn("train", input_context))
            _, label = iterator.get_next()
            session.run(iterator.initializer)
            return [session.run(label).tolist() for _ in range(20)]

    first, second = read(context(2, 0), ops_before=0), read(context(2, 1), ops_before=5)
    assert [sorted(a + b) for a, b in zip(first, second)] == [sorted(batch) for batch in read(None, ops_before=2)]


def test_pipelines_share_real_images(make_reader, tmp_path):
    data = load_digits()
    digits = [(upscale(image).tobytes(), int(label)) for image, label in zip(data.images[:500], data.target)]
    files = [write(tmp_path / str(index), digits[index::3]) for index in range(3)]

    def read(resident_bytes: int, input_context) -> list[list[tuple[bytes, int]]]:
        sharded = make_reader(
            (28, 28, 1), train_files=files, train_batch_size=100, shuffle_buffer=200, resident_bytes=resident_bytes
        )
        return [
            [(image.astype(np.uint8).tobytes(), int(number)) for image, number in zip(features["image"], label)]
            for features, label in sharded.input_fn("train", input_context).take(8).as_numpy_iterator()
        ]

    for resident_bytes in (0, 1 << 24):
        alone = read(resident_bytes, None)
        shares = [read(resident_bytes, context(2, index)) for index in range(2)]
        assert sorted(digits) == sorted(pair for batch in alone[:5] for pair in batch)
        for step, batch in enumerate(alone):
            assert sorted(batch) == sorted(pair for share in shares for pair in share[step])


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_pipelines_that_share_by_file_have_disjoint_files(files, pipelines):
    shares = [own_files(files[::-1], context(pipelines, index)) for index in range(pipelines)]
    assert sorted(path for share in shares for path in share) == files
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_file_sharding_is_disjoint_and_complete_in_each_epoch(reader):
    pipelines = 3
    sharded = reader(sharding="file", train_batch_size=2 * pipelines)
    everything: list[int] = []
    for index in range(pipelines):
        seen = flat(labels(sharded.input_fn("train", context(pipelines, index)), TOTAL))
        own = len(set(seen))
        assert sorted(seen[:own]) == sorted(seen[own : 2 * own]) == sorted(set(seen))
        everything += set(seen)
    assert sorted(everything) == list(range(TOTAL))


def test_a_file_sharded_pipeline_resumes_after_its_equal_share(reader):
    straight = labels(reader(sharding="file").input_fn("train", context(2, 1)), 25)
    resumed = labels(reader(sharding="file", start_step=lambda: 15).input_fn("train", context(2, 1)), 10)
    assert resumed == straight[15:]


def test_file_sharding_makes_no_difference_to_a_single_pipeline(reader):
    shared = reader(sharding="file", start_step=lambda: 3).input_fn("train", context(1, 0))
    assert labels(shared, 12) == labels(reader(start_step=lambda: 3).input_fn("train"), 12)


def test_a_pipeline_whose_files_are_empty_is_refused_in_each_pipeline(tmp_path):
    sizes = {"a": 5, "b": 0, "c": 7, "d": 0}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    paths = [str(tmp_path / name) for name in sizes]
    for index in range(2):
        with pytest.raises(DataError, match="input pipeline 1 of 2 would have no examples: b, d are empty"):
            own_files(paths, context(2, index))
    # An empty file among others is harmless.
    assert own_files([paths[0], paths[2], paths[1]], None) == paths[:3]
    assert own_files([paths[1], *paths[:1], paths[2]], context(1, 0)) == paths[:3]


def test_too_few_files_to_share_are_refused(make_reader):
    sharded = make_reader(sharding="file", train_batch_size=18)
    with refused(DataError, todo="trainer.distribution.sharding: element") as caught:
        sharded.input_fn("train", context(9, 8))
    assert caught.value.what == "8 training files cannot be shared among 9 input pipelines by file"
    assert "data.shards" in caught.value.todo


@pytest.mark.parametrize(("mode", "key"), [("train", "trainer.global_batch_size"), ("eval", "trainer.eval_batch_size")])
def test_a_global_batch_that_replicas_cannot_share_is_refused(make_reader, mode, key):
    with pytest.raises(DeclarationError) as caught:
        make_reader().input_fn(mode, context(3, 0))
    assert caught.value.what == f"{key}: 16 examples do not divide evenly among 3 replicas"
    assert caught.value.todo == "for example 15 or 18"


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_pipelines_evaluate_each_example_exactly_once(make_reader, files, pipelines):
    sharded = make_reader(eval_files=files[:2], eval_batch_size=4 * pipelines, sharding="file")
    read = [labels(sharded.input_fn("eval", context(pipelines, index))) for index in range(pipelines)]
    assert sorted(flat(batch for part in read for batch in part)) == list(range(SIZES[0] + SIZES[1]))
    assert any(len(part[-1]) < 4 for part in read)
    assert all(len(batch) == 4 for part in read for batch in part[:-1])


@pytest.mark.parametrize("count", [3, 40, 99, 100, 101, 102, 103, 199, 200])
@pytest.mark.parametrize(("batch", "replicas"), [(50, 2), (20, 3), (100, 1)])
def test_data_end_with_a_batch_for_every_replica(count, batch, replicas):
    """Also in the last step of an evaluation."""
    dataset = tf.data.Dataset.range(count)
    sizes = batch_sizes(dataset, batch, replicas)
    batches = [len(each) for each in dataset.batch(16).rebatch(sizes, drop_remainder=False)]
    assert sum(batches) == count
    assert len(batches) % replicas == 0
    assert all(0 < size <= batch for size in batches)
    # As many steps as on one device with the same global batch; all but the last are full.
    step = batch * replicas
    assert len(batches) // replicas == -(-count // step)
    assert batches[: max(count // step - 1, 0) * replicas] == [batch] * max(count // step - 1, 0) * replicas
