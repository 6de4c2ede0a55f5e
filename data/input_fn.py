"""The input_fn of training and evaluation: tf.Examples in, transformed batches out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

import tensorflow as tf

from data.features import LABEL

# More of them cost more CPU than they save time.
_PARALLEL_READS = 2
_BLOCK = 64

Features = dict[str, tf.Tensor]
Transform = Callable[[Features], Features]

# Examples that are parsed and transformed in one call.
_CHUNK = 512


@dataclass(frozen=True)
class ExampleReader:
    """Reads tf.Examples from TFRecord files for `tf.estimator`; call `input_fn` with it.

    Images stay raw bytes through shuffling and batching; hundreds are parsed and transformed at once, which costs a
    tenth of parsing one example at a time.

    Args:
        train_files: TFRecord files of the training split.
        eval_files: TFRecord files of the evaluation split.
        feature_spec: What to parse, name to `tf.io.FixedLenFeature` and the like.
        transform: Applies the Transform graph to a batch of parsed features.
        train_batch_size: Global batch size, in examples.
        eval_batch_size: Global batch size of evaluation, in examples.
        shuffle_buffer: In examples; for training files that are not kept in memory.
        resident_bytes: Training files of up to this size together are kept in memory, and shuffled as a whole.
        seed: Of the order of files and examples.
        start_step: Returns the global step that training starts from, so that a resumed run goes on in the data where
            it stopped: a checkpoint does not hold the input's position.
        label: Name of the label among the transformed features.
    """

    train_files: Sequence[str]
    eval_files: Sequence[str]
    feature_spec: dict[str, object]
    transform: Transform
    train_batch_size: int
    eval_batch_size: int
    shuffle_buffer: int
    seed: int
    resident_bytes: int = 0
    start_step: Callable[[], int] = lambda: 0
    label: str = LABEL

    def input_fn(self, mode: str, input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        """Builds the data set of one input pipeline; `tf.estimator` calls it with both arguments by name.

        Training shuffles and repeats for ever. Evaluation reads every example exactly once.

        Args:
            mode: One of `tf.estimator.ModeKeys`.
            input_context: Which of how many input pipelines this is; None is the only one.

        Returns:
            Batches of (features, label): transformed features, and int64 [batch]. The batch is the per-replica one,
            since an Estimator does not rebatch.
        """
        if mode == tf.estimator.ModeKeys.TRAIN:
            return self._train(input_context)
        return self._eval(input_context)

    def _train(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = context.get_per_replica_batch_size(self.train_batch_size) if context else self.train_batch_size
        pipelines = context.num_input_pipelines if context else 1
        start = self.start_step() * self.train_batch_size // pipelines
        files = _shard(tf.data.Dataset.from_tensor_slices(sorted(self.train_files)), context)
        if sum(tf.io.gfile.stat(path).length for path in self.train_files) <= self.resident_bytes:
            chunks = self._resident(files, start, _chunk(batch_size))
        else:
            chunks = self._streamed(files, start, _chunk(batch_size))
        return self._parsed(chunks, batch_size, drop_remainder=True)

    def _streamed(self, files: tf.data.Dataset, start: int, batch_size: int) -> tf.data.Dataset:
        """Reads the files over and over, in another order each time, through a shuffle buffer."""
        records = _records(files.shuffle(len(self.train_files), seed=self.seed))
        records = records.shuffle(self.shuffle_buffer, seed=self.seed).repeat().skip(start)
        return records.batch(batch_size, drop_remainder=True)

    def _resident(self, files: tf.data.Dataset, start: int, batch_size: int) -> tf.data.Dataset:
        """Reads the files once; each epoch is a permutation of all examples, and skipping costs next to nothing."""

        def batches(records: tf.Tensor) -> tf.data.Dataset:
            size = tf.size(records, out_type=tf.int64)
            order = tf.data.Dataset.range(size).shuffle(size, seed=self.seed).repeat().skip(start)
            return order.batch(batch_size, drop_remainder=True).map(lambda chosen: tf.gather(records, chosen))

        return _records(files).batch(tf.int64.max).flat_map(batches)

    def _eval(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = context.get_per_replica_batch_size(self.eval_batch_size) if context else self.eval_batch_size
        files = _shard(tf.data.Dataset.from_tensor_slices(sorted(self.eval_files)), context)
        return self._parsed(_records(files).batch(_chunk(batch_size)), batch_size, drop_remainder=False)

    def _parsed(self, chunks: tf.data.Dataset, batch_size: int, drop_remainder: bool) -> tf.data.Dataset:
        def parse(serialized: tf.Tensor) -> tuple[Features, tf.Tensor]:
            features = self.transform(tf.io.parse_example(serialized, self.feature_spec))
            return features, features.pop(self.label)

        # In the thread that prefetches: a second one would take CPU from training and gain nothing.
        parsed = chunks.map(parse)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and the tuner's own cost shows
        return parsed.rebatch(batch_size, drop_remainder=drop_remainder).prefetch(2).with_options(options)


def _chunk(batch_size: int) -> int:
    """Whole batches, parsed and transformed at once: a call costs much for a small one."""
    return max(_CHUNK // batch_size, 1) * batch_size


def _records(files: tf.data.Dataset) -> tf.data.Dataset:
    """Reads several files at a time; the order is the same each time."""
    return files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=_PARALLEL_READS,
        block_length=_BLOCK,
        num_parallel_calls=_PARALLEL_READS,
        deterministic=True,
    )


def _shard(files: tf.data.Dataset, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
    """Gives each input pipeline its own files, disjoint and complete."""
    if context is None or context.num_input_pipelines == 1:
        return files
    return files.shard(context.num_input_pipelines, context.input_pipeline_id)
