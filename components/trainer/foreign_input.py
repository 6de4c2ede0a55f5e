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
_KINDS = (tf.TensorSpec, tf.SparseTensorSpec, tf.RaggedTensorSpec)
_BATCH = "a tf.data.Dataset of batches: each tensor's first dimension is the batch"


def share(input_fn: InputFn, in_step: bool = True, training: bool = True) -> InputFn:
    """Makes every step's global batch one batch of the user's, whatever the number of replicas.

    Replicas that train in step take consecutive parts of each batch. In training the parts are equal, and where a batch
    does not divide evenly, as the last one of an epoch may not, the rest of the division is left out. In evaluation
    every example is in a part, and each step has one for every replica: TensorFlow loses the batches that are left over
    when they do not divide evenly. Workers of parameter servers take whole batches in turn.

    All input pipelines call the same input_fn under the same graph seed (`RunConfig.tf_random_seed`), and so make the
    same batches, as long as chance comes from TensorFlow alone: a shuffle by `random` or NumPy is another in each
    worker.

    Args:
        input_fn: Of a TrainSpec or an EvalSpec. One that takes `input_context` shares its examples itself.
        in_step: Do the workers train in step; those of parameter servers do not.
        training: Must the parts be equal; else they must be complete.

    Returns:
        An input_fn for any strategy; the same one where it shares by itself.

    Raises:
        UserCodeError: (when it is called) It returns no data set of batches, or batches that do not divide evenly.
    """
    if shares_itself(input_fn):
        return input_fn

    def shared(mode: str, params: Any, config: Any, input_context: Any = None) -> tf.data.Dataset:
        if input_context is None:
            return _call(input_fn, mode, params, config)
        dataset = call(input_fn, mode, params, config)
        return own_parts(dataset, input_context, in_step, training)

    return shared


def shares_itself(input_fn: InputFn) -> bool:
    """Tells whether an input_fn takes `input_context`, as an Estimator finds out."""
    return _CONTEXT in function_utils.fn_args(input_fn)


def call(input_fn: InputFn, mode: str, params: Any, config: Any) -> tf.data.Dataset:
    """Calls an input_fn as an Estimator does, for the only input pipeline.

    Args:
        input_fn: Of a TrainSpec or an EvalSpec.
        mode: Of `tf.estimator.ModeKeys`.
        params: The Estimator's.
        config: The Estimator's.

    Returns:
        The data set, whose elements are batches.

    Raises:
        UserCodeError: It returns something else.
    """
    result = _call(input_fn, mode, params, config)
    if not isinstance(result, tf.data.Dataset):
        kinds = [type(part).__name__ for part in result] if isinstance(result, (tuple, list)) else None
        raise UserCodeError(
            f"{_owner(mode)}.input_fn returns {'(' + ', '.join(kinds) + ')' if kinds else type(result).__name__}, and "
            "trainer.distribution declares a strategy: tensors cannot be shared among its replicas and workers",
            expected=_BATCH,
            todo="return the data set itself, or train with the strategy one_device",
        )
    _check_batches(_owner(mode), dict(_leaves(result)))
    return result


def _owner(mode: str) -> str:
    return "TrainSpec" if mode == tf.estimator.ModeKeys.TRAIN else "EvalSpec"


def _call(input_fn: InputFn, mode: str, params: Any, config: Any) -> Any:
    known = {"mode": mode, "params": params, "config": config, _CONTEXT: tf.distribute.InputContext()}
    wanted = function_utils.fn_args(input_fn)
    with tf.device("/cpu:0"):
        return input_fn(**{name: value for name, value in known.items() if name in wanted})


def own_parts(
    dataset: tf.data.Dataset, context: tf.distribute.InputContext, in_step: bool = True, training: bool = True
) -> tf.data.Dataset:
    """Takes this input pipeline's share of each batch.

    Args:
        dataset: Of batches, the same ones in every pipeline: nested structures of dense, sparse and ragged tensors.
        context: Which of how many input pipelines this is.
        in_step: As for `share`.
        training: As for `share`.

    Returns:
        Batches for one replica each: as many in a row as this pipeline feeds replicas.

    Raises:
        UserCodeError: The batches are known not to divide evenly among the replicas, and must.
    """
    pipelines, pipeline, replicas = context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync
    if pipelines > 1:
        # The parts fit together only if every pipeline makes the same batches.
        options = tf.data.Options()
        options.deterministic = True
        dataset = dataset.with_options(options)
    if pipelines > 1 and not in_step:
        dataset, pipelines, pipeline = dataset.shard(pipelines, pipeline), 1, 0
    if replicas == 1:
        return dataset
    leaves = _leaves(dataset)
    static = next((spec.shape[0] for _, spec in leaves if spec.shape.rank and spec.shape[0] is not None), None)
    if static is not None and training:
        check_divides(static, replicas)
    names = [name for name, _ in leaves]
    own = replicas // pipelines

    def parts(index: tf.Tensor, element: Any) -> tf.data.Dataset:
        tensors = [leaf for leaf in nest.flatten(element) if leaf is not None]
        if not training:
            size = _check_enough(_size(names, tensors), replicas)
        elif static is not None:
            # Where the graph knows the size, it also knows those of the parts.
            size = static
        else:
            size = _check_first(_size(names, tensors), index, replicas)
            size -= size % replicas
        datasets = []
        for place in range(pipeline * own, (pipeline + 1) * own):
            start, stop = place * size // replicas, (place + 1) * size // replicas
            rows = functools.partial(take_rows, start=start, stop=stop)
            datasets.append(tf.data.Dataset.from_tensors(nest.map_structure(rows, element)))
        chained = functools.reduce(lambda left, right: left.concatenate(right), datasets)
        # Fewer examples than replicas are no batch: a mean over none is not a number.
        return chained.take(tf.where(tf.greater(size, 0), tf.constant(own, tf.int64), 0))

    return dataset.enumerate().flat_map(parts)


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


def size_of(value: Any) -> int:
    """Counts the examples of a batch.

    Args:
        value: What `session.run` returned for one tensor of it: an array, a SparseTensorValue or a RaggedTensorValue.

    Returns:
        The size of the first dimension.
    """
    if isinstance(value, tf.compat.v1.SparseTensorValue):
        return int(value.dense_shape[0])
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return len(value.row_splits) - 1
    return len(value)


def take_rows(leaf: Any, start: Any, stop: Any) -> Any:
    """Takes rows of a batch.

    Args:
        leaf: A dense, sparse or ragged tensor, or None.
        start: The first row, a number or an int64 scalar.
        stop: The row after the last one.

    Returns:
        A tensor of the same kind; None of None.
    """
    if leaf is None:
        return None
    if isinstance(leaf, tf.SparseTensor):
        rest = leaf.dense_shape[1:]
        begin = tf.concat([tf.reshape(tf.cast(start, tf.int64), [1]), tf.zeros_like(rest)], 0)
        extent = tf.concat([tf.reshape(tf.cast(stop - start, tf.int64), [1]), rest], 0)
        return tf.sparse.slice(leaf, begin, extent)
    return leaf[start:stop]


def _leaves(dataset: tf.data.Dataset) -> list[tuple[str, Any]]:
    """The parts of an element: where each stands, and its TypeSpec."""
    spec = dataset.element_spec
    if type(spec) is tuple and len(spec) == 2:
        spec = {"features": spec[0], "labels": spec[1]}
    named = nest.flatten_with_joined_string_paths(spec)
    return [(path or "features", each) for path, each in named if isinstance(each, _KINDS)]


def _check_batches(owner: str, leaves: dict[str, Any]) -> None:
    scalars = [path for path, spec in leaves.items() if spec.shape.rank == 0]
    if scalars:
        raise UserCodeError(
            f"`{scalars[0]}` is a scalar in each element of the data set that {owner}.input_fn returns, and "
            "trainer.distribution declares a strategy: the data set is not batched, or the scalar is of no example",
            expected=_BATCH,
            todo="end the input_fn with dataset.batch(N); what is of no example belongs to params",
        )
    sizes = {path: spec.shape[0] for path, spec in leaves.items() if spec.shape.rank and spec.shape[0] is not None}
    if len(set(sizes.values())) > 1:
        raise UserCodeError(
            f"the tensors that {owner}.input_fn returns differ in their first dimension: "
            + ", ".join(f"`{path}` has {size}" for path, size in sizes.items()),
            expected=_BATCH,
            todo="batch them together: dataset.batch(N)",
        )


def _size(names: list[str], tensors: list[Any]) -> tf.Tensor:
    """Examples in a batch, an int64 scalar."""
    first, *others = zip(names, map(_count, tensors))
    checks = [
        tf.debugging.assert_equal(
            first[1], count, f"input_fn: `{first[0]}` and `{name}` differ in their first dimension, the batch"
        )
        for name, count in others
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(first[1])


def _check_first(size: tf.Tensor, index: tf.Tensor, replicas: int) -> tf.Tensor:
    """Lets only a later batch, which may be the last of an epoch, be cut short."""
    said = (
        f"the first batch of TrainSpec.input_fn does not divide evenly among the {replicas} replicas of "
        f"trainer.distribution.train: choose a batch size that is a multiple of {replicas}"
    )
    fits = tf.logical_or(index > 0, tf.equal(size % replicas, 0))
    with tf.control_dependencies([check for check in [tf.debugging.Assert(fits, [said, size])] if check is not None]):
        return tf.identity(size)


def _check_enough(size: tf.Tensor, replicas: int) -> tf.Tensor:
    said = (
        f"EvalSpec.input_fn makes a batch of fewer examples than the {replicas} replicas of trainer.distribution.eval: "
        "choose another batch size, or the strategy one_device"
    )
    check = tf.debugging.assert_greater_equal(size, tf.constant(replicas, tf.int64), said)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(size)


def _count(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    return tf.shape(leaf, tf.int64)[0]
