"""The input_fn of training and evaluation: tf.Examples in, transformed batches out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

import tensorflow as tf

from tfx_estimator.data.augmentation.augmenter import Augmenter
from tfx_estimator.data.features import LABEL
from tfx_estimator.data.order import Rows, hand_out, resident_windows, streamed_windows
from tfx_estimator.data.packing import Features, packing_of
from tfx_estimator.data.record_index import index_records
from tfx_estimator.data.sharding import (
    ELEMENT,
    FILE,
    batch_sizes,
    own_elements,
    own_files,
    per_replica_batch_size,
    pipeline_count,
    replicas_of_pipeline,
)
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.augment import Operation

# Files read at once in evaluation: more of them cost more CPU than they save time.
_PARALLEL_READS = 2
# Least records of a block, which is read in a row; larger if a shuffle window still consists of _BLOCKS_IN_WINDOW.
_BLOCK = 64
_BLOCKS_IN_WINDOW = 32

Transform = Callable[[Features], Features]

# Examples parsed and transformed in one call.
_CHUNK = 512


@dataclass(frozen=True)
class ExampleReader:
    """Reads tf.Examples from TFRecord files for `tf.estimator`; call `input_fn` with it.

    Images stay raw bytes through shuffling and batching; hundreds are parsed and transformed at once, which costs a
    tenth of parsing one example at a time. Numbers that are kept in memory are parsed only once.

    The order of training depends only on seed and position (see `order`), so that it starts at any step as fast as at
    the first.

    Several input pipelines share the training examples in one of two ways; either is disjoint, and complete in each
    epoch:

    - `element`, exact: every pipeline reads all files in the same order, shuffles with the same seed, and takes every
      n-th example. With synchronous replicas, the batches of a step together hold the examples that one device would
      train that step with: from step 0, after a resume, in every epoch, and with any number of pipelines.
    - `file`, fast: every pipeline reads files of its own. The batches differ from those of one device, a pipeline's
      epoch is as long as its own files, and the position after a resume is approximate: each pipeline skips an equal
      share of the examples trained with so far, regardless of its actual share.

    Evaluation always shares by element, and its last batches are smaller if its data do not divide evenly.

    Args:
        transform: Applies the Transform graph to a batch of parsed features; None for examples transformed already.
        train_batch_size: Global batch size, in examples.
        shuffle_buffer: In examples; for training files that are not kept in memory. Half of it is shuffled and yielded
            while the other half is read, in random blocks of the files. 1 keeps the order within a block.
        resident_bytes: Training files of up to this total size are kept in memory, and shuffled as a whole.
        start_step: Returns the global step that training starts from, so that a resumed run continues in the data where
            it stopped: a checkpoint does not hold the input's position. An int64 tensor if a restarted worker runs the
            same graph again.
        sharding: `element` or `file`.
        index_folder: Stores the offsets of the training files' records; None computes them at each start.
        augment: Operations on training images, after `transform`: their random numbers depend only on the seed and
            the example's position, so they do not depend on sharding by element, batch size and resume.
    """

    train_files: Sequence[str]
    eval_files: Sequence[str]
    feature_spec: dict[str, object]
    transform: Optional[Transform]
    train_batch_size: int
    eval_batch_size: int
    shuffle_buffer: int
    seed: int
    resident_bytes: int = 0
    start_step: Callable[[], Union[int, tf.Tensor]] = lambda: 0
    label: str = LABEL
    sharding: str = ELEMENT
    index_folder: Optional[str] = None
    augment: Sequence[Operation] = ()

    def input_fn(self, mode: str, input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        """Builds the data set of one input pipeline; `tf.estimator` calls it with both arguments by name.

        Training shuffles and repeats forever. Evaluation reads every example exactly once.

        Args:
            mode: One of `tf.estimator.ModeKeys`.
            input_context: None is a single input pipeline.

        Returns:
            Batches of (features, label): transformed features, and int64 [batch]. Batches are per replica, since an
            Estimator does not rebatch.
        """
        if mode == ModeKeys.TRAIN:
            return self._train(input_context)
        return self._eval(input_context)

    def read(self, serialized: tf.Tensor) -> Features:
        """Returns the transformed features of serialized examples, string [batch], with the label."""
        return self._transform(self._parse(serialized))

    # Without AutoGraph, which takes seconds to convert the functions of a data set.
    @tf.autograph.experimental.do_not_convert
    def _train(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = per_replica_batch_size(self.train_batch_size, "trainer.global_batch_size", context)
        files, start = sorted(self.train_files), self.start_step() * self.train_batch_size
        augmenter = None
        if self.augment:
            # Pipelines with files of their own count their own positions.
            stream = context.input_pipeline_id if context and self.sharding == FILE else 0
            augmenter = Augmenter(self.augment, self.seed, stream)
        resident = sum(tf.io.gfile.stat(path).length for path in files) <= self.resident_bytes
        if self.sharding == FILE:
            files, start, context = own_files(files, context), start // pipeline_count(context), None
        # One window is yielded while the next one is read.
        window = self.shuffle_buffer // 2
        index = index_records(files, max(window // _BLOCKS_IN_WINDOW, _BLOCK), self.index_folder)
        packing = packing_of(self.feature_spec)
        # Parsed numbers may be larger than their records; and pipelines that share windows parse their own rows only.
        if packing and (
            packing.row_bytes * index.records > index.bytes or not (resident or pipeline_count(context) == 1)
        ):
            packing = None
        parse = packing.parse if packing else None
        if resident:
            windows, seed = resident_windows(index, start, parse), self.seed
        elif window > 1:
            windows, seed = streamed_windows(index, start, self.seed, window, parse), self.seed
        else:
            windows, seed = streamed_windows(index, start, self.seed, _CHUNK, parse), None
        chunks = hand_out(windows, start, seed, context, _chunk(batch_size), numbered=augmenter is not None)
        return self._batches(chunks, batch_size, packing.unpack if packing else self._parse, True, augmenter)

    @tf.autograph.experimental.do_not_convert
    def _eval(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = per_replica_batch_size(self.eval_batch_size, "trainer.eval_batch_size", context)
        records = own_elements(_records(tf.data.Dataset.from_tensor_slices(sorted(self.eval_files))), context)
        sizes = batch_sizes(records, batch_size, replicas_of_pipeline(context))
        return self._batches(records.batch(_chunk(batch_size)), sizes, self._parse, drop_remainder=False)

    def _parse(self, serialized: tf.Tensor) -> Features:
        return tf.io.parse_example(serialized, self.feature_spec)

    def _transform(self, features: Features) -> Features:
        return self.transform(features) if self.transform else features

    def _batches(
        self,
        chunks: tf.data.Dataset,
        batch_size: Union[int, tf.Tensor],
        read: Callable[[Rows], Features],
        drop_remainder: bool,
        augmenter: Optional[Augmenter] = None,
    ) -> tf.data.Dataset:
        def make(rows: Rows, positions: Optional[tf.Tensor] = None) -> tuple[Features, tf.Tensor]:
            features = self._transform(read(rows))
            label = features.pop(self.label)
            return (augmenter(features, positions) if augmenter else features), label

        # In the prefetching thread: a second one would take CPU from training without a gain.
        made = chunks.map(make)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and tuning has a measurable cost
        return made.rebatch(batch_size, drop_remainder=drop_remainder).prefetch(2).with_options(options)


def _chunk(batch_size: int) -> int:
    """Returns the examples of whole batches to parse in one call: a call for a single small batch is expensive."""
    return max(_CHUNK // batch_size, 1) * batch_size


def _records(files: tf.data.Dataset) -> tf.data.Dataset:
    """Reads several files at a time, in a deterministic order."""
    return files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=_PARALLEL_READS,
        block_length=_BLOCK,
        num_parallel_calls=_PARALLEL_READS,
        deterministic=True,
    )
