"""The input_fn of training and evaluation: tf.Examples in, transformed batches out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

import tensorflow as tf

from tfx_estimator.data.features import LABEL
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
from tfx_estimator.pipeline.errors import DeclarationError

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

    Several input pipelines share the training examples in one of two ways; either is disjoint, and complete in each
    epoch:

    - `element`, exact: every pipeline reads all files in the same order, shuffles with the same seed, and takes every
      n-th example. Where the replicas train in step, the batches of a step hold together the examples that one device
      would train that step with: from step 0, after a resume, in every epoch, and with any number of pipelines.
      TensorFlow mixes its global seed (`RunConfig.tf_random_seed`) into the order: give all tasks the same.
    - `file`, fast: every pipeline reads files of its own. The batches are not those of one device, a pipeline's epoch
      is as long as its own files, and the position after a resume is approximate: each pipeline skips an equal share
      of the examples trained with so far, whatever part it really had in them.

    Evaluation always shares by element, and its last batches are smaller where its data do not divide evenly.

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
        sharding: `element` or `file`.

    Raises:
        DeclarationError: There is no such sharding.
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
    sharding: str = ELEMENT

    def __post_init__(self) -> None:
        if self.sharding not in (ELEMENT, FILE):
            raise DeclarationError(
                f"trainer.distribution.sharding: there is no sharding `{self.sharding}`",
                expected=f"{ELEMENT} or {FILE}",
                todo=f"set it to {ELEMENT}, the exact one",
            )

    def input_fn(self, mode: str, input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        """Builds the data set of one input pipeline; `tf.estimator` calls it with both arguments by name.

        Training shuffles and repeats for ever. Evaluation reads every example exactly once.

        Args:
            mode: One of `tf.estimator.ModeKeys`.
            input_context: Which of how many input pipelines this is; None is the only one.

        Returns:
            Batches of (features, label): transformed features, and int64 [batch]. The batch is the per-replica one,
            since an Estimator does not rebatch.

        Raises:
            DeclarationError: The global batch does not divide evenly among the replicas.
            DataError: Sharding is by file, and there are fewer training files than input pipelines.
        """
        if mode == tf.estimator.ModeKeys.TRAIN:
            return self._train(input_context)
        return self._eval(input_context)

    def _train(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = per_replica_batch_size(self.train_batch_size, "trainer.global_batch_size", context)
        resident = sum(tf.io.gfile.stat(path).length for path in self.train_files) <= self.resident_bytes
        files, start = sorted(self.train_files), self.start_step() * self.train_batch_size
        if self.sharding == FILE:
            files, start, context = own_files(files, context), start // pipeline_count(context), None
        build = self._resident if resident else self._streamed
        return self._parsed(build(files, start, context, _chunk(batch_size)), batch_size, drop_remainder=True)

    def _streamed(
        self, files: list[str], start: int, context: Optional[tf.distribute.InputContext], batch_size: int
    ) -> tf.data.Dataset:
        """Reads the files over and over, in another order each time, through a shuffle buffer."""
        order = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed=self.seed)
        records = _records(order).shuffle(self.shuffle_buffer, seed=self.seed).repeat().skip(start)
        return own_elements(records, context).batch(batch_size, drop_remainder=True)

    def _resident(
        self, files: list[str], start: int, context: Optional[tf.distribute.InputContext], batch_size: int
    ) -> tf.data.Dataset:
        """Reads the files once; each epoch is a permutation of all examples, and skipping costs next to nothing."""

        def batches(records: tf.Tensor) -> tf.data.Dataset:
            size = tf.size(records, out_type=tf.int64)
            order = tf.data.Dataset.range(size).shuffle(size, seed=self.seed).repeat().skip(start)
            chosen = own_elements(order, context).batch(batch_size, drop_remainder=True)
            return chosen.map(lambda indices: tf.gather(records, indices))

        return _records(tf.data.Dataset.from_tensor_slices(files)).batch(tf.int64.max).flat_map(batches)

    def _eval(self, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
        batch_size = per_replica_batch_size(self.eval_batch_size, "trainer.eval_batch_size", context)
        records = own_elements(_records(tf.data.Dataset.from_tensor_slices(sorted(self.eval_files))), context)
        sizes = batch_sizes(records, batch_size, replicas_of_pipeline(context))
        return self._parsed(records.batch(_chunk(batch_size)), sizes, drop_remainder=False)

    def _parsed(
        self, chunks: tf.data.Dataset, batch_size: Union[int, tf.Tensor], drop_remainder: bool
    ) -> tf.data.Dataset:
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
