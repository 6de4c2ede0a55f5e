"""The order of training examples: a function of seed and position only, so that training resumes anywhere at once.

An epoch is every record once. Each epoch has an order of its own of blocks of consecutive records; the sequence of
their records is cut into windows, each of which is shuffled as a whole. If all records are in memory, the epoch is a
single window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.data.record_index import FRAME, RecordIndex

# Blocks read at once: more of them cost more CPU than they save time.
_PARALLEL_READS = 2
_READ_BUFFER = 1 << 20
# Records parsed in one call: that of a block costs a third more.
_PARSED = 4096
_PHILOX = 1

# Examples: a tensor, or several by name, whose first dimension is the example.
Rows = Any


def resident_windows(
    index: RecordIndex, start: int | tf.Tensor, parse: Optional[Callable[[tf.Tensor], Rows]] = None
) -> tf.data.Dataset:
    """Reads all records once; each window is an epoch.

    Args:
        start: Position of the first example to yield, counted over all epochs.
        parse: Applied to serialized examples, string [count], before they are kept in memory.

    Returns:
        Position of the window's first example, an int64 scalar, and its examples, serialized as string [records], or
        what `parse` makes of them; an infinite data set that starts with the window of `start`.
    """

    def epochs(rows: Rows) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(start // index.records, tf.int64.max)
        return numbers.map(lambda epoch: (epoch * index.records, rows))

    numbers = tf.data.Dataset.range(len(index.blocks))
    read = _read(index, numbers.map(lambda block: (block, 0)))
    if parse:
        read = read.rebatch(_PARSED).map(parse, num_parallel_calls=_PARALLEL_READS, deterministic=True)
    return read.rebatch(index.records).flat_map(epochs)


def streamed_windows(
    index: RecordIndex,
    start: int | tf.Tensor,
    seed: int,
    window: int,
    parse: Optional[Callable[[tf.Tensor], Rows]] = None,
) -> tf.data.Dataset:
    """Reads the blocks repeatedly, in a new order for each epoch; starts with the first block that is needed.

    Args:
        window: Records to shuffle together; as many are read ahead.
    """
    counts = tf.constant([count for *_, count in index.blocks], tf.int64)

    def epoch_windows(epoch: tf.Tensor) -> tf.data.Dataset:
        first = epoch * index.records
        # Negative numbers, to differ from the positions that seed the windows.
        order = _shuffled(len(index.blocks), seed, -1 - epoch)
        window_number = tf.maximum(start - first, 0) // window
        ends = tf.cumsum(tf.gather(counts, order))
        block = tf.searchsorted(ends, [window_number * window], side="right", out_type=tf.int64)[0]
        remaining = order[block:]
        skipped = window_number * window - (ends[block] - counts[order[block]])
        skips = tf.concat([[skipped], tf.zeros_like(remaining[1:])], axis=0)
        records = _read(index, tf.data.Dataset.from_tensor_slices((remaining, skips))).rebatch(window)
        windows = (records.map(parse) if parse else records).enumerate(window_number)
        return windows.map(lambda number, rows: (first + number * window, rows))

    epochs = tf.data.Dataset.range(start // index.records, tf.int64.max)
    return epochs.flat_map(epoch_windows).prefetch(1)


def hand_out(
    windows: tf.data.Dataset,
    start: int | tf.Tensor,
    seed: Optional[int],
    context: Optional[tf.distribute.InputContext],
    chunk: int,
    numbered: bool = False,
) -> tf.data.Dataset:
    """Shuffles each window, and takes this input pipeline's examples: every n-th, counted over all epochs.

    So the pipelines' next examples together are those that a single pipeline would take next.

    Args:
        windows: The result of `resident_windows` or `streamed_windows`, the same in every pipeline.
        seed: Seeds the order within the windows; None keeps the stored order.
        numbered: True to yield positions too.

    Returns:
        The windows' examples, [chunk]; with their positions, int64 [chunk], if `numbered`.
    """
    pipelines, pipeline = (context.num_input_pipelines, context.input_pipeline_id) if context else (1, 0)

    def own(position: tf.Tensor, rows: Rows) -> tf.data.Dataset:
        size = tf.shape(tf.nest.flatten(rows)[0], out_type=tf.int64)[0]
        skipped = tf.maximum(start - position, 0)
        first = skipped + (pipeline - position - skipped) % pipelines
        order = (tf.range(size) if seed is None else _shuffled(size, seed, position))[first::pipelines]
        numbers = tf.data.Dataset.range(0, tf.size(order, out_type=tf.int64), chunk)

        def take(number: tf.Tensor) -> Rows:
            places = order[number : number + chunk]
            return tf.nest.map_structure(lambda each: tf.gather(each, places), rows)

        if not numbered:
            return numbers.map(take)
        positions = tf.range(position + first, position + size, pipelines)
        return numbers.map(lambda number: (take(number), positions[number : number + chunk]))

    return windows.flat_map(own).rebatch(chunk, drop_remainder=True)


def _read(index: RecordIndex, requests: tf.data.Dataset) -> tf.data.Dataset:
    """Reads blocks, given by their number and the number of records to skip at their start."""
    files, blocks = tf.constant(list(index.files)), tf.constant(index.blocks, tf.int64)

    def read(block: tf.Tensor, skipped: tf.Tensor) -> tf.Tensor:
        file, offset, length, count = tf.unstack(blocks[block])

        def records_from(first: tf.Tensor) -> tf.data.Dataset:
            variant = tf.raw_ops.TFRecordDatasetV2(
                filenames=files[file],
                compression_type="",
                buffer_size=tf.minimum(length, _READ_BUFFER),
                byte_offsets=first,
            )
            return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))

        # In a flat_map, as in tf.data.TFRecordDataset: other functions crash on the type that TensorFlow infers.
        dataset = tf.data.Dataset.from_tensors(offset).flat_map(records_from)
        records = dataset.batch(count).take(1).get_single_element()
        read_bytes = tf.reduce_sum(tf.cast(tf.strings.length(records), tf.int64) + FRAME)
        # If a file has changed, each task of a cluster would continue with an order of its own.
        text = ["damaged file", files[file], "changed while it was read: expected", count, "records from byte", offset]
        intact = tf.logical_and(tf.equal(tf.size(records, out_type=tf.int64), count), tf.equal(read_bytes, length))
        check = tf.debugging.Assert(intact, text)
        with tf.control_dependencies([] if check is None else [check]):
            return records[skipped:]

    return requests.map(read, num_parallel_calls=_PARALLEL_READS, deterministic=True)


def _shuffled(size: int | tf.Tensor, seed: int, number: tf.Tensor) -> tf.Tensor:
    """Returns a permutation, int64 [size], the same in every process for equal seed and number."""
    # As tf.random.experimental.stateless_shuffle does, in a few ops instead of dozens.
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.stack([tf.cast(seed, tf.int64), number]))
    numbers = tf.range(tf.cast(size, tf.int64))
    return tf.raw_ops.StatelessShuffle(value=numbers, key=key, counter=counter, alg=_PHILOX)
