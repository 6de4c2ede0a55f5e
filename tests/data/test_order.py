"""The order of training examples, from any step."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from tests.artifacts import write_records
from tfx_estimator.data import input_fn
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

# Not multiples of a block, a batch, a window or a number of pipelines.
SIZES = (1000, 130, 3, 877)
TOTAL = sum(SIZES)
BATCH = 24
LATE = [10**6, 10**9]
SIDES = {"streamed": 0, "resident": 1 << 20}


def write(path: Path, numbers: range, size: int = 60) -> str:
    """Writes records of equal length: their numbers, padded."""
    return write_records(path, (f"{number:0{size}d}".encode() for number in numbers))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("records")
    edges = [sum(SIZES[:index]) for index in range(len(SIZES) + 1)]
    return [write(folder / f"file-{index}", range(*edges[index : index + 2])) for index in range(len(SIZES))]


@pytest.fixture(scope="module")
def read(files):
    """Reads the numbers of records from a step on; equal reads share a dataset."""

    @functools.cache
    def read(side: str, step: int, count: int, pipelines: int = 1, pipeline: int = 0, **settings) -> tuple[int, ...]:
        examples = numbers(files, SIDES[side], step, pipelines, pipeline, **settings)
        return tuple(number for number, _ in zip(examples, range(count)))

    return read


def numbers(
    files: list[str], resident_bytes: int, step: int, pipelines: int = 1, pipeline: int = 0, **settings
) -> Iterator[int]:
    context = tf.distribute.InputContext(pipelines, pipeline, num_replicas_in_sync=pipelines)
    for batch in serialized(make_reader(files, resident_bytes, step, **settings), context).as_numpy_iterator():
        yield from map(int, batch)


def make_reader(files: list[str], resident_bytes: int, step: int, **settings):
    return ExampleReader(
        **{
            "train_files": files,
            "eval_files": files,
            "feature_spec": {},
            "transform": lambda raw: raw,
            "train_batch_size": BATCH,
            "eval_batch_size": BATCH,
            "shuffle_buffer": 400,
            "seed": 7,
            "resident_bytes": resident_bytes,
            "start_step": lambda: step,
            **settings,
        }
    )


def serialized(reader, context):
    """Returns batches of the serialized examples that a reader would parse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_fn.tf.io, "parse_example", lambda records, spec: {"label": records})
        dataset = reader.input_fn(ModeKeys.TRAIN, context)
    return dataset.map(lambda features, label: label)


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> str:
    return request.param


def test_epochs_are_complete_and_each_has_its_own_order(read, side):
    straight = read(side, 0, 3 * TOTAL)
    epochs = [straight[start : start + TOTAL] for start in range(0, 3 * TOTAL, TOTAL)]
    assert all(sorted(epoch) == list(range(TOTAL)) for epoch in epochs)
    assert len(set(epochs)) == 3


@pytest.mark.parametrize("step", [1, TOTAL // BATCH, TOTAL // BATCH + 1, 2 * TOTAL // BATCH - 1])
def test_a_resumed_run_reads_what_an_uninterrupted_run_would(read, side, step):
    straight = read(side, 0, 3 * TOTAL)
    assert read(side, step, 500) == straight[step * BATCH :][:500]


@pytest.mark.parametrize("step", LATE)
def test_a_late_start_is_within_the_right_epoch(read, side, step):
    epoch, offset = divmod(step * BATCH, TOTAL)
    # A batch is an epoch: the step is the epoch's number.
    whole = read(side, epoch, 2 * TOTAL, train_batch_size=TOTAL)
    assert sorted(whole[:TOTAL]) == sorted(whole[TOTAL:]) == list(range(TOTAL))
    assert read(side, step, TOTAL) == whole[offset : offset + TOTAL]


@pytest.mark.parametrize(("step", "pipelines"), zip(LATE, (2, 3)))
def test_pipelines_share_the_late_batches_of_one_device(read, side, step, pipelines):
    alone = read(side, step, TOTAL)
    shares = [read(side, step, TOTAL // pipelines, pipelines, pipeline) for pipeline in range(pipelines)]
    own = BATCH // pipelines
    for start in range(TOTAL // BATCH):
        together = [number for share in shares for number in share[start * own : (start + 1) * own]]
        assert sorted(together) == sorted(alone[start * BATCH : (start + 1) * BATCH])


def test_a_late_start_of_file_sharding_is_within_its_own_epoch(read, side):
    pipelines, step = 2, 10**6
    for pipeline in range(pipelines):
        size = sum(SIZES[pipeline::pipelines])
        epoch, offset = divmod(step * BATCH // pipelines, size)
        whole = read(side, epoch, 2 * size, pipelines, pipeline, sharding="file", train_batch_size=size * pipelines)
        assert len(set(whole)) == size
        assert read(side, step, size, pipelines, pipeline, sharding="file") == whole[offset : offset + size]


def test_the_order_is_the_same_in_every_process_and_version(read, side):
    first = read(side, 0, 3 * TOTAL)[:6]
    assert first == {"streamed": STREAMED, "resident": RESIDENT}[side]


# Changing these changes the order of every training: a resumed one would see examples twice.
STREAMED = (1572, 1549, 586, 1561, 1564, 616)
RESIDENT = (83, 1168, 1940, 1033, 1017, 1789)


def test_examples_come_from_all_over_the_files(tmp_path):
    """Sorted labels are the worst case of a streamed data set."""
    records, window = 20_000, 2048
    path = write(tmp_path / "sorted", range(records))
    stream = numbers([path], 0, 0, shuffle_buffer=2 * window)
    epoch = [next(stream) for _ in range(records)]
    assert sorted(epoch) == list(range(records))
    for start in range(0, records - window, window):
        seen = epoch[start : start + window]
        # 32 blocks at random: a standard deviation of 0.05.
        assert abs(sum(seen) / window / records - 0.5) < 0.25
        assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(seen)) < 20


def test_a_start_reads_no_more_at_the_end_of_an_epoch_than_at_its_beginning(tmp_path):
    records, size, batch, window = 40_000, 100, 10, 500
    path = write(tmp_path / "file", range(records), size)
    folder = str(tmp_path / "index")

    def read_bytes(step: int) -> int:
        stream = numbers([path], 0, step, train_batch_size=batch, shuffle_buffer=2 * window, index_folder=folder)
        before = _read_by_this_process()
        next(stream)
        after = _read_by_this_process()
        stream.close()
        return after - before

    read_bytes(0)  # loads modules and the index
    bound = 8 * window * (size + 16)
    assert bound < records * size / 8
    for step in (0, records // batch - 2, 10**6 + 2_077):
        assert 0 < read_bytes(step) <= bound


def _read_by_this_process() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def test_a_file_that_changes_while_it_is_read_ends_training(tmp_path):
    path = write(tmp_path / "file", range(120), 100)
    reader = make_reader([path], 0, 0)
    stream = serialized(reader, None).as_numpy_iterator()
    # 116 records of 104 bytes are as long as 120 of 100.
    write_records(path, [b"1" * 104] * 116)
    assert Path(path).stat().st_size == 120 * 116
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s)damaged file.*{path}.*changed while it was read"):
        next(stream)
