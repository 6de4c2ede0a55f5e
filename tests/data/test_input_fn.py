"""input_fn, on real tf.Examples."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import DataError, DeclarationError, UserCodeError

pytestmark = pytest.mark.unit

SIZES = (20, 13, 27, 19, 11, 25, 5, 30)  # examples per file
TOTAL = sum(SIZES)
RESIDENT = {"streamed": 0, "resident": 1 << 20}
PIPELINES = range(1, 9)


def write(path: Path, examples: Iterable[tuple[bytes, int]]) -> str:
    """Writes (image, label) pairs as tf.Examples."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in examples:
            example = tf.train.Example()
            example.features.feature["image"].bytes_list.value.append(image)
            example.features.feature["label"].int64_list.value.append(label)
            writer.write(example.SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Eight files; the label of an example is its number, and each of its four pixels too."""
    folder = tmp_path_factory.mktemp("examples")
    numbers = iter(range(TOTAL))
    return [
        write(
            folder / f"data_tfrecord-{index:05d}-of-{len(SIZES):05d}",
            ((bytes([number] * 4), number) for _, number in zip(range(size), numbers)),
        )
        for index, size in enumerate(SIZES)
    ]


@pytest.fixture(scope="module")
def make_reader(files: list[str]):
    import tensorflow as tf

    from tfx_estimator.data.input_fn import ExampleReader
    from tfx_estimator.data.preprocessing import decode_images

    def make(image_shape=(2, 2, 1), **values):
        settings = {
            "train_files": files,
            "eval_files": files,
            "feature_spec": {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
            },
            "transform": lambda raw: {**raw, "image": tf.cast(decode_images(raw["image"], image_shape), tf.float32)},
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "shuffle_buffer": 64,
            "seed": 7,
            **values,
        }
        return ExampleReader(**settings)

    return make


@pytest.fixture(scope="module", params=RESIDENT.values(), ids=RESIDENT.keys())
def reader(make_reader, request: pytest.FixtureRequest):
    return lambda **values: make_reader(resident_bytes=request.param, **values)


@pytest.fixture(scope="module")
def order(reader) -> list[int]:
    """More than two epochs, in the order in which one device gets them."""
    return flat(labels(reader(train_batch_size=24).input_fn("train"), 15))


def labels(dataset, batches: int | None = None) -> list[list[int]]:
    return [label.tolist() for _, label in dataset.take(batches or -1).as_numpy_iterator()]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def context(pipelines: int, index: int, replicas: int = 1):
    """The context of one input pipeline, which feeds so many replicas."""
    import tensorflow as tf

    return tf.distribute.InputContext(pipelines, index, num_replicas_in_sync=pipelines * replicas)


def global_batches(reader, pipelines: int, steps: int, replicas: int = 1) -> list[list[int]]:
    """What all replicas of all pipelines get in each step; a replica gets a batch of its own."""
    read = [
        labels(reader.input_fn("train", context(pipelines, index, replicas)), steps * replicas)
        for index in range(pipelines)
    ]
    return [
        sorted(flat(batch for part in read for batch in part[step * replicas : (step + 1) * replicas]))
        for step in range(steps)
    ]


def one_device(reader, steps: int) -> list[list[int]]:
    return [sorted(batch) for batch in labels(reader.input_fn("train"), steps)]


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


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_element_sharding_gives_the_global_batches_of_one_device(reader, order, pipelines):
    size = 24 // pipelines * pipelines
    steps = 2 * TOTAL // size + 1
    batches = global_batches(reader(train_batch_size=size), pipelines, steps)
    assert batches == [sorted(order[step * size : (step + 1) * size]) for step in range(steps)]
    seen: collections.Counter[int] = collections.Counter(dict.fromkeys(range(TOTAL), 0))
    for batch in batches:  # no example comes back before all others had their turn
        seen.update(batch)
        assert max(seen.values()) - min(seen.values()) <= 1
    assert min(seen.values()) == 2


@pytest.mark.parametrize(("pipelines", "replicas", "step"), [(2, 2, 0), (2, 1, 5), (3, 2, 23)])
def test_pipelines_with_several_replicas_start_where_one_device_would_be(reader, pipelines, replicas, step):
    settings = {"train_batch_size": 24}
    resumed = global_batches(reader(start_step=lambda: step, **settings), pipelines, 13, replicas)
    assert resumed == one_device(reader(**settings), step + 13)[step:]


def test_a_run_of_two_pipelines_resumes_with_one(reader):
    before = global_batches(reader(), 2, 6)
    after = global_batches(reader(start_step=lambda: 6), 1, 6)
    assert before + after == one_device(reader(), 12)


def test_pipelines_of_differing_tf1_graphs_agree_on_the_order(reader):
    """A task's graph may hold other random ops than another's, the chief's for one."""
    import tensorflow as tf

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
    from sklearn.datasets import load_digits

    from tfx_estimator.data.digits import upscale

    data = load_digits()
    digits = [(upscale(image).tobytes(), int(label)) for image, label in zip(data.images[:500], data.target)]
    files = [write(tmp_path / str(index), digits[index::3]) for index in range(3)]

    def read(resident_bytes: int, input_context) -> list[list[tuple[bytes, int]]]:
        made = make_reader(
            (28, 28, 1), train_files=files, train_batch_size=100, shuffle_buffer=200, resident_bytes=resident_bytes
        )
        return [
            [(image.astype(np.uint8).tobytes(), int(number)) for image, number in zip(features["image"], label)]
            for features, label in made.input_fn("train", input_context).take(8).as_numpy_iterator()
        ]

    for resident_bytes in (0, 1 << 24):
        alone = read(resident_bytes, None)
        shares = [read(resident_bytes, context(2, index)) for index in range(2)]
        assert sorted(digits) == sorted(pair for batch in alone[:5] for pair in batch)
        for step, batch in enumerate(alone):
            assert sorted(batch) == sorted(pair for share in shares for pair in share[step])


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_pipelines_that_share_by_file_have_disjoint_files(files, pipelines):
    from tfx_estimator.data.sharding import own_files

    shares = [own_files(files[::-1], context(pipelines, index)) for index in range(pipelines)]
    assert sorted(path for share in shares for path in share) == files
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_file_sharding_is_disjoint_and_complete_in_each_epoch(reader):
    pipelines = 3
    made = reader(sharding="file", train_batch_size=2 * pipelines)
    everything: list[int] = []
    for index in range(pipelines):
        seen = flat(labels(made.input_fn("train", context(pipelines, index)), TOTAL))
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
    from tfx_estimator.data.sharding import own_files

    sizes = {"a": 5, "b": 0, "c": 7, "d": 0}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    paths = [str(tmp_path / name) for name in sizes]
    for index in range(2):
        with pytest.raises(DataError, match="input pipeline 1 of 2 would have no example to read: b, d are empty"):
            own_files(paths, context(2, index))
    # An empty file beside others does no harm.
    assert own_files([paths[0], paths[2], paths[1]], None) == paths[:3]
    assert own_files([paths[1], *paths[:1], paths[2]], context(1, 0)) == paths[:3]


def test_too_few_files_to_share_are_refused(make_reader):
    made = make_reader(sharding="file", train_batch_size=18)
    with pytest.raises(DataError) as caught:
        made.input_fn("train", context(9, 8))
    assert caught.value.what == "8 training files cannot be shared among 9 input pipelines by file"
    assert "data.shards" in caught.value.todo
    assert "trainer.distribution.sharding: element" in caught.value.todo


@pytest.mark.parametrize(("mode", "key"), [("train", "trainer.global_batch_size"), ("eval", "trainer.eval_batch_size")])
def test_a_global_batch_that_replicas_cannot_share_is_refused(make_reader, mode, key):
    with pytest.raises(DeclarationError) as caught:
        make_reader().input_fn(mode, context(3, 0))
    assert caught.value.what == f"{key}: 16 examples do not divide evenly among 3 replicas"
    assert caught.value.todo == "for example 15 or 18"


def test_an_unknown_sharding_is_refused(make_reader):
    with pytest.raises(DeclarationError, match="there is no sharding `files`"):
        make_reader(sharding="files")


@pytest.mark.parametrize("pipelines", PIPELINES)
def test_pipelines_evaluate_each_example_exactly_once(make_reader, files, pipelines):
    made = make_reader(eval_files=files[:2], eval_batch_size=4 * pipelines, sharding="file")
    read = [labels(made.input_fn("eval", context(pipelines, index))) for index in range(pipelines)]
    assert sorted(flat(batch for part in read for batch in part)) == list(range(SIZES[0] + SIZES[1]))
    assert any(len(part[-1]) < 4 for part in read)
    assert all(len(batch) == 4 for part in read for batch in part[:-1])


def test_a_pipeline_parses_only_its_own_examples(make_reader, tmp_path):
    import tensorflow as tf

    path = write(tmp_path / "good", ((bytes([number] * 4), number) for number in range(10)))
    mixed = str(tmp_path / "mixed")
    with tf.io.TFRecordWriter(mixed) as writer:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            writer.write(record)
            writer.write(b"not a tf.Example")
    made = make_reader(eval_files=[mixed])
    assert flat(labels(made.input_fn("eval", context(2, 0)))) == list(range(10))
    with pytest.raises(tf.errors.InvalidArgumentError):
        labels(made.input_fn("eval", context(2, 1)))


# The examples' images are of a single colour: what tells them apart is added.
AUGMENT = TrainerSection.parse_obj({"augment": [{"gaussian_noise": {"stddev": 0.1}}, "random_brightness"]}).augment


def varied(dataset, batches: int) -> list[tuple[int, bytes]]:
    """Label and image of each example."""
    return [
        (int(number), image.tobytes())
        for features, label in dataset.take(batches).as_numpy_iterator()
        for image, number in zip(features["image"], label, strict=True)
    ]


@pytest.fixture(scope="module")
def alone(reader) -> list[tuple[int, bytes]]:
    """More than two epochs of varied images, as one device gets them."""
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
    made = reader(train_batch_size=batch, augment=AUGMENT, start_step=lambda: step)
    steps = (len(alone) // batch) - step
    for index in range(pipelines):
        own = varied(made.input_fn("train", context(pipelines, index)), steps)
        assert own == alone[step * batch + index :: pipelines][: len(own)]
        assert len(own) == steps * batch // pipelines


def test_pipelines_with_files_of_their_own_vary_by_numbers_of_their_own(reader):
    made = {"sharding": "file", "augment": AUGMENT, "train_batch_size": 16}
    shares = [varied(reader(**made).input_fn("train", context(2, index)), 8) for index in range(2)]
    first, second = ([np.frombuffer(image, np.float32) - number for number, image in share] for share in shares)
    assert np.abs(np.array(first) - np.array(second)).min(axis=1).max() > 0.01
    resumed = reader(**made, start_step=lambda: 5).input_fn("train", context(2, 1))
    assert varied(resumed, 3) == shares[1][5 * 8 :]


def test_evaluation_varies_nothing(make_reader):
    one, other = make_reader(), make_reader(augment=AUGMENT)
    assert varied(one.input_fn("eval"), -1) == varied(other.input_fn("eval"), -1)


def test_a_preprocessing_fn_without_images_ends_with_its_own_error(make_reader):
    made = make_reader(augment=AUGMENT, transform=lambda raw: {"label": raw["label"]})
    with pytest.raises(UserCodeError, match="the preprocessing_fn returns nothing, and no `image`"):
        made.input_fn("train")
