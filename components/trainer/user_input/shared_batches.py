"""Shares the batches of a user's input_fn among replicas.

An Estimator neither splits a batch nor shards a data set: under N replicas each takes a batch as the input_fn makes it,
and under N workers each reads the same ones. That is what an input_fn that takes `input_context` is written for. One
that knows nothing of replicas is read as on one device, unless the declaration says otherwise.
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
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.problems import nearest_multiples

InputFn = Callable[..., Any]
# Of a cluster whose RunConfig has none: all workers must shuffle alike.
SEED = 1
# Values of `trainer.distribution.input_batch`.
GLOBAL_BATCH, PER_REPLICA = "global", "per_replica"
_CONTEXT = "input_context"


def share(input_fn: InputFn, in_step: bool = True, training: bool = True, input_batch: str = GLOBAL_BATCH) -> InputFn:
    """Makes of a user's input_fn one for the replicas of any strategy.

    One that takes `input_context` makes the batches of each replica, as TensorFlow has it, and in training is handed
    on as it is. So is one that does not where `input_batch` is `per_replica`; each worker then reads all examples, in
    an order of its own. A batch of any other is the global one: replicas that train in step take consecutive, equal
    parts of each, and if one does not divide evenly, as the last one of an epoch may not, the rest of the division is
    left out. Workers of parameter servers take whole batches in turn.

    In evaluation every example counts once: TensorFlow loses the batches that are left over when they do not divide
    evenly, so those are split. The examples of a batch smaller than the replicas are shared with those of the one
    before it.

    All input pipelines call the same input_fn under the same graph seed (`RunConfig.tf_random_seed`), and so make the
    same batches, as long as chance comes from TensorFlow alone: a shuffle by `random` or NumPy is another in each
    worker.

    Args:
        input_fn: Of a TrainSpec or an EvalSpec.
        in_step: Do the workers train in step; those of parameter servers do not.
        training: Must the parts be equal; else they must be complete.
        input_batch: As `trainer.distribution.input_batch`.

    Returns:
        An input_fn for any strategy; the same one if there is nothing to do, as of the built-in one.
    """
    if is_built_in(input_fn):
        return input_fn
    takes_context = takes_input_context(input_fn)
    whole = takes_context or input_batch == PER_REPLICA

    def shared(mode: str, params: Any, config: Any, input_context: Any = None) -> Any:
        context = input_context or tf.distribute.InputContext()
        make = functools.partial(call_input_fn, input_fn, mode, params, config, context)
        alike = takes_context or not (whole and training)
        with contextlib.nullcontext() if alike else _own_order(context.input_pipeline_id):
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
    """Has each worker, of those that all read all examples, shuffle them in an order of its own."""
    graph = tf.compat.v1.get_default_graph()
    seed = graph.seed
    graph.seed = None if seed is None else seed + pipeline
    try:
        yield
    finally:
        graph.seed = seed


def _reader(tensors: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """What a strategy takes in place of a data set: it is called once for each device, and returns its tensors."""
    made = [tensors]
    return lambda: made.pop() if made else make()


def takes_input_context(input_fn: InputFn) -> bool:
    """Tells whether an input_fn takes `input_context`, as an Estimator finds out."""
    return _CONTEXT in function_utils.fn_args(input_fn)


def is_built_in(input_fn: InputFn) -> bool:
    """Tells whether an input_fn is this project's own, which shares exactly whatever there is to share."""
    return isinstance(getattr(input_fn, "__self__", None), ExampleReader)


def check_dataset(result: Any, mode: str) -> tf.data.Dataset:
    """Refuses what several replicas cannot read."""
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
    """Calls an input_fn as an Estimator does."""
    context = context or tf.distribute.InputContext()
    known = {"mode": mode, "params": params, "config": config, _CONTEXT: context}
    wanted = function_utils.fn_args(input_fn)
    with tf.device("/cpu:0"):
        return input_fn(**{name: value for name, value in known.items() if name in wanted})


def split_batches(
    dataset: tf.data.Dataset, context: tf.distribute.InputContext, in_step: bool = True, training: bool = True
) -> tf.data.Dataset:
    """Takes this input pipeline's share of each batch."""
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
    firsts = {spec.shape[0] if spec.shape.rank else None for _, spec in _leaves(dataset)}
    # Of some tensors alone it need not be the batch's: of a table, say, or of the steps of a sequence.
    static = firsts.pop() if len(firsts) == 1 else None
    if static is not None and training:
        check_divides(static, replicas)
    own = replicas // pipelines

    def parts(index: tf.Tensor, element: Any) -> tf.data.Dataset:
        tensors = [leaf for leaf in nest.flatten(element) if leaf is not None]
        if not training:
            size = _check_enough(_size(names, tensors), replicas)
        elif static is not None:
            # If the graph knows the size, it also knows those of the parts.
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


def hand_out_batches(dataset: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Gives whole batches to the replicas in turn, and splits those at the end that are too few for all of them."""
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
    """Names the tensors of a data set's elements, for an error."""
    return [name for name, _ in _leaves(dataset)]


def _leaves(dataset: tf.data.Dataset) -> list[tuple[str, Any]]:
    """The parts of an element: where each stands, and its TypeSpec."""
    spec = dataset.element_spec
    if type(spec) is tuple and len(spec) == 2:
        spec = {"features": spec[0], "labels": spec[1]}
    named = nest.flatten_with_joined_string_paths(spec)
    return [(path or "features", each) for path, each in named if isinstance(each, KINDS)]


def _size(names: list[str], tensors: list[Any]) -> tf.Tensor:
    """Examples in a batch, an int64 scalar."""
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
        f"EvalSpec.input_fn makes fewer examples than the {replicas} replicas of trainer.distribution.eval: evaluate "
        "more, or declare the strategy one_device"
    )
    check = tf.debugging.assert_greater_equal(size, tf.constant(replicas, tf.int64), said)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(size)
