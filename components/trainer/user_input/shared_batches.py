"""Shares the batches of a user's input_fn among replicas.

An Estimator neither splits a batch nor shards a data set: each of N replicas takes a batch as the input_fn makes it,
and each of N workers reads the same ones. An input_fn that takes `input_context` is written for that. Any other is
read as on one device, unless `trainer.distribution.input_batch` is `per_replica`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.util import function_utils, nest

from tfx_estimator.components.trainer.user_input.rows import KINDS, count_rows, fill_short_batches, take_rows
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.model_fn.bridge import iterators
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.problems import nearest_multiples

InputFn = Callable[..., Any]
# For a cluster whose RunConfig has no seed: all workers must shuffle in the same order.
SEED = 1
# Values of `trainer.distribution.input_batch`.
GLOBAL_BATCH, PER_REPLICA = "global", "per_replica"
_CONTEXT = "input_context"


def share(input_fn: InputFn, in_step: bool = True, training: bool = True, input_batch: str = GLOBAL_BATCH) -> InputFn:
    """Adapts a user's input_fn to the replicas of any strategy.

    If it takes `input_context`, it makes the batches of each replica, by TensorFlow's contract, and training uses them
    unchanged. So it does with `input_batch: per_replica`; each worker then reads all examples, in an order of its own.
    Any other input_fn makes global batches: synchronous replicas take consecutive, equal parts of each; the remainder
    of a batch that does not divide evenly, such as the last one of an epoch, is dropped. Workers of parameter_server
    take whole batches in turn.

    In evaluation every example counts once: TensorFlow drops the last batches if they are fewer than the replicas, so
    those are split. A batch with fewer examples than replicas is filled up from the previous one.

    All input pipelines call the same input_fn under the same graph seed (`RunConfig.tf_random_seed`), and so make the
    same batches, if only TensorFlow draws random numbers: a shuffle by `random` or NumPy differs in each worker.

    Args:
        in_step: True if the workers train synchronously, unlike those of parameter_server.
        training: True if the parts must be equal; False if they must be complete.
        input_batch: `trainer.distribution.input_batch`.

    Returns:
        An input_fn for any strategy; the built-in one is returned unchanged.
    """
    if is_built_in(input_fn):
        return input_fn
    takes_context = takes_input_context(input_fn)
    whole = takes_context or input_batch == PER_REPLICA

    def shared(mode: str, params: Any, config: Any, input_context: Any = None) -> Any:
        context = input_context or tf.distribute.InputContext()
        make = functools.partial(call_input_fn, input_fn, mode, params, config, context)
        same_order = takes_context or not (whole and training)
        with contextlib.nullcontext() if same_order else _own_order(context.input_pipeline_id):
            result = make()
        if input_context is None:
            return result
        if context.num_replicas_in_sync == 1 and not isinstance(result, tf.data.Dataset):
            return _reader(result, make)
        dataset = check_dataset(result, mode)
        if (whole and training) or context.num_input_pipelines == context.num_replicas_in_sync == 1:
            return dataset
        if whole:
            return hand_out_batches(dataset, context.num_replicas_in_sync)
        return split_batches(dataset, context, in_step, training)

    return shared


@contextlib.contextmanager
def _own_order(pipeline: int) -> Iterator[None]:
    """Changes the graph seed by worker, so that each shuffles in an order of its own."""
    graph = tf.compat.v1.get_default_graph()
    seed = graph.seed
    graph.seed = None if seed is None else seed + pipeline
    try:
        yield
    finally:
        graph.seed = seed


def _reader(tensors: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function in place of a data set; a strategy calls it once for each device, to get its tensors."""
    made = [tensors]
    return lambda: made.pop() if made else make()


def takes_input_context(input_fn: InputFn) -> bool:
    """Returns True if an input_fn takes `input_context`, by the Estimator's own check."""
    return _CONTEXT in function_utils.fn_args(input_fn)


def is_built_in(input_fn: InputFn) -> bool:
    """Returns True for the built-in input_fn, which shards exactly under any strategy."""
    return isinstance(getattr(input_fn, "__self__", None), ExampleReader)


def check_dataset(result: Any, mode: str) -> tf.data.Dataset:
    """Refuses anything but a data set."""
    if isinstance(result, tf.data.Dataset):
        return result
    owner = "TrainSpec" if mode == ModeKeys.TRAIN else "EvalSpec"
    kinds = [type(part).__name__ for part in result] if isinstance(result, (tuple, list)) else None
    raise UserCodeError(
        f"{owner}.input_fn returns {'(' + ', '.join(kinds) + ')' if kinds else type(result).__name__}, and "
        "trainer.distribution declares a strategy: tensors cannot be shared among its replicas and workers",
        expected="a tf.data.Dataset of batches: each tensor's first dimension is the batch",
        todo="return the data set itself: dataset in place of dataset.make_one_shot_iterator().get_next(), and "
        "tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y)).repeat().batch(N) in place of "
        "numpy_input_fn(x, y, N); or train with the strategy one_device or parameter_server",
    )


def call_input_fn(
    input_fn: InputFn, mode: str, params: Any, config: Any, context: Optional[tf.distribute.InputContext] = None
) -> Any:
    """Calls an input_fn as an Estimator does; returns the data set in place of `iterator.get_next()` where possible."""
    context = context or tf.distribute.InputContext()
    known = {"mode": mode, "params": params, "config": config, _CONTEXT: context}
    accepted = function_utils.fn_args(input_fn)
    with tf.device("/cpu:0"):
        return iterators.call(lambda: input_fn(**{name: known[name] for name in known if name in accepted}))


def split_batches(
    dataset: tf.data.Dataset, context: tf.distribute.InputContext, in_step: bool = True, training: bool = True
) -> tf.data.Dataset:
    """Returns this input pipeline's share of each batch."""
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
    if not training:
        dataset = fill_short_batches(dataset, replicas)
    names = tensor_names(dataset)
    firsts = {tf.compat.dimension_value(spec.shape[0]) if spec.shape.rank else None for _, spec in _leaves(dataset)}
    # If only some tensors are static, it need not be the batch size, but may be that of a table or of a sequence.
    static = firsts.pop() if len(firsts) == 1 else None
    if static is not None and training:
        check_divides(static, replicas)
    own = replicas // pipelines

    def parts(index: tf.Tensor, element: Any) -> tf.data.Dataset:
        tensors = [leaf for leaf in nest.flatten(element) if leaf is not None]
        if not training:
            size = _check_enough(_size(names, tensors), replicas)
        elif static is not None:
            # A static size gives the parts static sizes.
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
        # Drops a batch with fewer examples than replicas: a mean over no examples is NaN.
        return chained.take(tf.where(tf.greater(size, 0), tf.constant(own, tf.int64), 0))

    return dataset.enumerate().flat_map(parts)


def hand_out_batches(dataset: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Gives whole batches to the replicas in turn; splits the last ones if they are fewer than the replicas."""
    structure = dataset.element_spec
    names = tensor_names(dataset)

    def unpack(_: tf.Tensor, element: Any) -> tuple[Any, ...]:
        return tuple(leaf for leaf in nest.flatten(element) if leaf is not None)

    def hand_out(*leaves: tf.data.Dataset) -> tf.data.Dataset:
        group = tf.data.Dataset.zip(leaves)
        count = group.reduce(tf.constant(0, tf.int64), lambda sum_, *_: sum_ + 1)
        parts = tf.where(tf.equal(count, replicas), tf.constant(1, tf.int64), tf.constant(replicas, tf.int64))

        def split(*tensors: Any) -> tf.data.Dataset:
            size = _check_enough(_size(names, list(tensors)), replicas)

            def part(place: tf.Tensor) -> tuple[Any, ...]:
                start, stop = place * size // parts, (place + 1) * size // parts
                return tuple(take_rows(tensor, start, stop) for tensor in tensors)

            return tf.data.Dataset.range(parts).map(part)

        return group.flat_map(split)

    def pack(*tensors: Any) -> Any:
        rest = iter(tensors)
        return nest.map_structure(lambda spec: next(rest) if isinstance(spec, KINDS) else None, structure)

    filled = fill_short_batches(dataset, replicas)
    return filled.enumerate().map(unpack).window(replicas).flat_map(hand_out).map(pack)


def check_divides(size: int, replicas: int) -> None:
    """Refuses a batch that does not divide evenly among replicas."""
    if size % replicas == 0:
        return
    raise UserCodeError(
        f"TrainSpec.input_fn makes batches of {size} examples, which do not divide evenly among {replicas} replicas "
        "(trainer.distribution.train)",
        expected=f"a multiple of {replicas}",
        todo=f"for example {nearest_multiples(size, replicas)}",
    )


def tensor_names(dataset: tf.data.Dataset) -> list[str]:
    """Returns the names of the tensors in a data set's elements."""
    return [name for name, _ in _leaves(dataset)]


def _leaves(dataset: tf.data.Dataset) -> list[tuple[str, Any]]:
    """Returns the path and TypeSpec of each tensor in an element."""
    spec = dataset.element_spec
    if type(spec) is tuple and len(spec) == 2:
        spec = {"features": spec[0], "labels": spec[1]}
    named = nest.flatten_with_joined_string_paths(spec)
    return [(path or "features", each) for path, each in named if isinstance(each, KINDS)]


def _size(names: list[str], tensors: list[Any]) -> tf.Tensor:
    """Returns the number of examples in a batch, an int64 scalar; asserts that all tensors have as many."""
    first, *others = zip(names, map(count_rows, tensors))
    checks = [
        tf.debugging.assert_equal(
            first[1], count, f"input_fn: `{first[0]}` and `{name}` differ in their first dimension, the batch"
        )
        for name, count in others
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(first[1])


def _check_first(size: tf.Tensor, index: tf.Tensor, replicas: int) -> tf.Tensor:
    """Asserts that the first batch divides evenly; a later one may be the last of an epoch."""
    message = (
        f"the first batch of TrainSpec.input_fn does not divide evenly among the {replicas} replicas of "
        f"trainer.distribution.train: choose a batch size that is a multiple of {replicas}"
    )
    fits = tf.logical_or(index > 0, tf.equal(size % replicas, 0))
    check = tf.debugging.Assert(fits, [message, size])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(size)


def _check_enough(size: tf.Tensor, replicas: int) -> tf.Tensor:
    message = (
        f"EvalSpec.input_fn makes fewer examples than the {replicas} replicas of trainer.distribution.eval: evaluate "
        "more, or declare the strategy one_device"
    )
    check = tf.debugging.assert_greater_equal(size, tf.constant(replicas, tf.int64), message)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(size)
