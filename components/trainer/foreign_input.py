"""Shares the batches of a user's training input_fn among replicas.

An Estimator neither splits a batch nor shards a data set: under N replicas that each take a batch as the input_fn makes
it, a step would train with N of them, and under N workers each would read the same ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.util import function_utils, nest

from pipeline.errors import UserCodeError

InputFn = Callable[..., Any]
_CONTEXT = "input_context"
_BATCH = "TrainSpec.input_fn returns a tf.data.Dataset of batches: each tensor's first dimension is the batch"


def share(input_fn: InputFn) -> InputFn:
    """Makes every step's global batch one batch of the user's, whatever the number of replicas.

    Synchronous replicas take equal, consecutive parts of each batch; where a batch does not divide evenly, as the last
    one of an epoch may not, the rest of the division is left out. Workers of parameter servers take whole batches in
    turn.

    All input pipelines call the same input_fn under the same graph seed (`RunConfig.tf_random_seed`), and so make the
    same batches, as long as chance comes from TensorFlow alone: a shuffle by `random` or NumPy is another in each
    worker.

    Args:
        input_fn: Of a TrainSpec. One that takes `input_context` shares its examples itself.

    Returns:
        An input_fn for any strategy; the same one where it shares by itself.

    Raises:
        UserCodeError: (when it is called) It returns no data set of batches, or batches that do not divide evenly.
    """
    if _CONTEXT in function_utils.fn_args(input_fn):
        return input_fn

    def shared(mode: str, params: Any, config: Any, input_context: Any = None) -> tf.data.Dataset:
        dataset = call(input_fn, mode, params, config)
        return dataset if input_context is None else own_parts(dataset, input_context)

    return shared


def call(input_fn: InputFn, mode: str, params: Any, config: Any) -> tf.data.Dataset:
    """Calls an input_fn as an Estimator does, for the only input pipeline.

    Args:
        input_fn: Of a TrainSpec.
        mode: Of `tf.estimator.ModeKeys`.
        params: The Estimator's.
        config: The Estimator's.

    Returns:
        The data set, whose elements are batches.

    Raises:
        UserCodeError: It returns something else.
    """
    known = {"mode": mode, "params": params, "config": config, _CONTEXT: tf.distribute.InputContext()}
    wanted = function_utils.fn_args(input_fn)
    with tf.device("/cpu:0"):
        result = input_fn(**{name: value for name, value in known.items() if name in wanted})
    if not isinstance(result, tf.data.Dataset):
        kinds = [type(part).__name__ for part in result] if isinstance(result, (tuple, list)) else None
        raise UserCodeError(
            f"TrainSpec.input_fn returns {'(' + ', '.join(kinds) + ')' if kinds else type(result).__name__}, and "
            "trainer.distribution declares several replicas or workers: tensors cannot be shared among them",
            expected=_BATCH,
            todo="return the data set itself, or train with the strategy one_device",
        )
    _check_batches(dict(_leaves(result)))
    return result


def own_parts(dataset: tf.data.Dataset, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Takes this input pipeline's share of each batch.

    Args:
        dataset: Of batches, the same ones in every pipeline: nested structures of dense, sparse and ragged tensors.
        context: Which of how many input pipelines this is.

    Returns:
        Batches for one replica each: as many in a row as this pipeline feeds replicas. Whole batches where replicas do
        not train in step.

    Raises:
        UserCodeError: The batches are known not to divide evenly among the replicas.
    """
    pipelines, replicas = context.num_input_pipelines, context.num_replicas_in_sync
    if pipelines > 1:
        # The parts fit together only if every pipeline makes the same batches.
        options = tf.data.Options()
        options.deterministic = True
        dataset = dataset.with_options(options)
    if replicas == 1:
        return dataset.shard(pipelines, context.input_pipeline_id) if pipelines > 1 else dataset
    names = [name for name, _ in _leaves(dataset)]
    sizes = {spec.shape[0] for _, spec in _leaves(dataset) if spec.shape.rank} - {None}
    if sizes:
        check_divides(sizes.pop(), replicas)
    own = replicas // pipelines
    first = context.input_pipeline_id * own
    unpacked = type(dataset.element_spec) is tuple

    def parts(*components: Any) -> tf.data.Dataset:
        element = components if unpacked else components[0]
        leaves = nest.flatten(element)
        size = _size(dict(zip(names, (leaf for leaf in leaves if leaf is not None)))) // replicas
        datasets = [
            tf.data.Dataset.from_tensors(
                nest.map_structure(functools.partial(_rows, start=(first + index) * size, size=size), element)
            )
            for index in range(own)
        ]
        chained = functools.reduce(lambda left, right: left.concatenate(right), datasets)
        # Fewer examples than replicas are no batch: a mean over none is not a number.
        return chained.take(tf.where(tf.greater(size, 0), tf.constant(own, tf.int64), 0))

    return dataset.flat_map(parts)


def check_divides(size: int, replicas: int) -> None:
    """Refuses a batch that does not divide evenly among replicas.

    Args:
        size: In examples.
        replicas: That train in step.

    Raises:
        UserCodeError: It does not.
    """
    if size % replicas == 0:
        return
    lower = size - size % replicas
    raise UserCodeError(
        f"TrainSpec.input_fn makes batches of {size} examples, which do not divide evenly among {replicas} replicas "
        "(trainer.distribution.train)",
        expected=f"a multiple of {replicas}",
        todo=f"for example {lower} or {lower + replicas}" if lower else f"for example {replicas}",
    )


def size_of(element: Any) -> int:
    """Counts the examples of a batch.

    Args:
        element: What `session.run` returned for an element of a data set: arrays, SparseTensorValue and the like.

    Returns:
        The size of the first dimension.
    """
    leaf = next(leaf for leaf in nest.flatten(element) if leaf is not None)
    if isinstance(leaf, tf.compat.v1.SparseTensorValue):
        return int(leaf.dense_shape[0])
    if isinstance(leaf, tf.compat.v1.ragged.RaggedTensorValue):
        return len(leaf.row_splits) - 1
    return len(leaf)


def _leaves(dataset: tf.data.Dataset) -> list[tuple[str, Any]]:
    """The parts of an element: where each stands, and its TypeSpec."""
    named = nest.flatten_with_joined_string_paths(dataset.element_spec)
    return [(path, spec) for path, spec in named if isinstance(spec, tf.TypeSpec) and hasattr(spec, "shape")]


def _check_batches(leaves: dict[str, Any]) -> None:
    scalars = [path for path, spec in leaves.items() if spec.shape.rank == 0]
    if scalars:
        raise UserCodeError(
            f"the data set of TrainSpec.input_fn has a scalar in each element, `{scalars[0]}` (features, labels: 0, "
            "1), and trainer.distribution declares several replicas or workers: it is not batched, or the scalar "
            "belongs to no example",
            expected=_BATCH,
            todo="end the input_fn with dataset.batch(N); what belongs to no example is for params",
        )
    sizes = {path: spec.shape[0] for path, spec in leaves.items() if spec.shape.rank and spec.shape[0] is not None}
    if len(set(sizes.values())) > 1:
        raise UserCodeError(
            "the tensors that TrainSpec.input_fn returns differ in their first dimension: "
            + ", ".join(f"`{path}` has {size}" for path, size in sizes.items()),
            expected=_BATCH,
            todo="batch them together: dataset.batch(N)",
        )


def _size(leaves: dict[str, Any]) -> Any:
    """Examples in a batch: a number where the graph knows it, else an int64 scalar."""
    known = [leaf.shape[0] for leaf in leaves.values() if leaf.shape.rank and leaf.shape[0] is not None]
    if known:
        return known[0]
    counts = {name: _count(leaf) for name, leaf in leaves.items()}
    (first, count), *others = counts.items()
    checks = [
        tf.debugging.assert_equal(
            count, other, f"TrainSpec.input_fn: `{first}` and `{name}` differ in their first dimension, the batch"
        )
        for name, other in others
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(count)


def _count(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    return tf.shape(leaf, tf.int64)[0]


def _rows(leaf: Any, start: Any, size: Any) -> Any:
    """Rows `start` to `start + size` of any kind of tensor."""
    if leaf is None:
        return None
    if isinstance(leaf, tf.SparseTensor):
        rest = leaf.dense_shape[1:]
        begin = tf.concat([tf.reshape(tf.cast(start, tf.int64), [1]), tf.zeros_like(rest)], 0)
        extent = tf.concat([tf.reshape(tf.cast(size, tf.int64), [1]), rest], 0)
        return tf.sparse.slice(leaf, begin, extent)
    return leaf[start : start + size]
