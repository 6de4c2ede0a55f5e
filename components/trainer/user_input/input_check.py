"""Checks the first batches of a user's input_fn: the size of the global batch, and whether replicas can share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
from tensorflow.python.util import nest

from tfx_estimator.components.trainer.user_input import shared_batches
from tfx_estimator.components.trainer.user_input.rows import size_of
from tfx_estimator.model_fn.bridge.tpu import params_in
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Distribution

# The result of a trainer_fn.
Spec = dict[str, Any]
# The flat values of a data set's element, as `session.run` returns them.
Batch = list[Any]

_TRAIN = ModeKeys.TRAIN
_INPUT_BATCH = "trainer.distribution.input_batch"
# Read of a training: a single batch might be equal in two readings by chance.
_BATCHES = 3
# The attribute `deterministic` of a data set op that yields its elements in the order in which they are ready.
_UNORDERED = b"false"


class Reading(NamedTuple):
    """The first batches of an input_fn.

    Attributes:
        element_spec: The data set's.
        batches: Flat, at least one.
        unordered: The op of the data set whose order is not deterministic; empty if there is none.
    """

    element_spec: Any
    names: list[str]
    batches: list[Batch]
    unordered: str

    def sizes(self) -> list[dict[str, int]]:
        """Returns the first dimension of each tensor, for each batch."""
        return [dict(zip(self.names, map(size_of, batch))) for batch in self.batches]

    @property
    def size(self) -> int:
        """The number of examples in the first batch."""
        return size_of(self.batches[0][0])

    def largest(self) -> dict[str, int]:
        """Returns the largest first dimension of each tensor."""
        sizes = self.sizes()
        return {name: max(each[name] for each in sizes) for name in self.names}


def read_batches(spec: Spec, mode: str = _TRAIN, context: Optional[tf.distribute.InputContext] = None) -> Reading:
    """Reads the first batches of a training, or the first one of an evaluation.

    Args:
        mode: TRAIN or EVAL.
        context: Passed to an input_fn that takes `input_context`; None is a single input pipeline.
    """
    estimator: tf.estimator.Estimator = spec["estimator"]
    owner = "TrainSpec" if mode == _TRAIN else "EvalSpec"
    with tf.Graph().as_default() as graph:
        seed = estimator.config.tf_random_seed
        tf.compat.v1.set_random_seed(shared_batches.SEED if seed is None else seed)
        input_fn = spec["train_spec" if mode == _TRAIN else "eval_spec"].input_fn
        made = shared_batches.call_input_fn(input_fn, mode, params_in(estimator, mode), estimator.config, context)
        dataset = shared_batches.check_dataset(made, mode)
        options = tf.data.Options()
        # As when workers share it: otherwise the order may differ each time.
        options.deterministic = True
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset.with_options(options))
        leaves = [leaf for leaf in nest.flatten(iterator.get_next()) if leaf is not None]
        batches: list[Batch] = []
        with tf.compat.v1.Session(config=estimator.config.session_config) as session:
            initializers = (tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer())
            session.run((*initializers, tf.compat.v1.tables_initializer()))
            session.run(iterator.initializer)
            while len(batches) < (_BATCHES if mode == _TRAIN else 1):
                try:
                    batches.append(session.run(leaves))
                except tf.errors.OutOfRangeError:
                    break
        unordered = _unordered(graph)
    if not batches:
        raise UserCodeError(
            f"{owner}.input_fn makes no batch",
            expected="a data set with examples",
            todo="check that its files exist and hold the examples that it reads",
        )
    reading = Reading(dataset.element_spec, shared_batches.tensor_names(dataset), batches, unordered)
    if scalars := [name for name, size in reading.sizes()[0].items() if size < 0]:
        raise UserCodeError(
            f"`{scalars[0]}` is a scalar in each element of the data set that {owner}.input_fn returns, and "
            "trainer.distribution declares a strategy: the data set is not batched, or the scalar is of no example",
            expected="batches: tensors with a first dimension",
            todo="end the input_fn with dataset.batch(N); pass what belongs to no example through `params`",
        )
    return reading


def check_evaluation_ends(spec: Spec) -> None:
    """Refuses an evaluation of all batches of a data set that repeats without end, as Keras does."""
    estimator, given = spec["estimator"], spec["eval_spec"]
    # A hook may end it.
    if given.steps is not None or given.hooks or shared_batches.is_built_in(given.input_fn):
        return
    # Without GPUs, which begin with the options of the first session.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        params = params_in(estimator, ModeKeys.EVAL)
        made = shared_batches.call_input_fn(given.input_fn, ModeKeys.EVAL, params, estimator.config)
        try:
            if not isinstance(made, tf.data.Dataset) or session.run(made.cardinality()) != tf.data.INFINITE_CARDINALITY:
                return
        except tf.errors.OpError:
            return  # of variables, which have no value here
    raise UserCodeError(
        "EvalSpec.input_fn repeats its data set without end, and EvalSpec.steps is None: the evaluation would not end",
        expected="a number of batches, or a data set that ends",
        todo="declare trainer.eval_steps, which EvalSpec(steps=fn_args.eval_steps) takes; or repeat once: num_epochs=1",
    )


class Part(NamedTuple):
    """The batches that each replica trains with.

    Attributes:
        reading: The replica's own batches, or those that all replicas share.
        whole: True if the replica takes each batch whole; False if it takes a part of one device's batch.
    """

    reading: Reading
    whole: bool


def read_part(
    make_spec: Callable[[], Spec], reading: Reading, distribution: Distribution, replicas: int, mode: str = _TRAIN
) -> Part:
    """Finds out which batches each replica trains with."""
    input_fn = make_spec()["train_spec" if mode == _TRAIN else "eval_spec"].input_fn
    if shared_batches.is_built_in(input_fn):
        return Part(reading, whole=False)
    if not shared_batches.takes_input_context(input_fn):
        return Part(reading, distribution.input_batch == shared_batches.PER_REPLICA)
    pipelines = distribution.train.worker_count if mode == _TRAIN else 1
    part = read_batches(make_spec(), mode, tf.distribute.InputContext(pipelines, 0, replicas))
    one, many = reading.largest(), part.largest()
    return Part(part, not any(one[name] == replicas * many[name] > 0 for name in reading.names))


def check_training(
    make_spec: Callable[[], Spec], distribution: Distribution, reading: Reading, part: Part, replicas: int
) -> tuple[str, list[str]]:
    """Describes the global batch, and refuses batches that cannot be shared.

    Args:
        reading: As read by a single input pipeline.
        part: As read by each replica.

    Returns:
        A description of the global batch, empty for the built-in input_fn; and warnings.
    """
    input_fn, workers = make_spec()["train_spec"].input_fn, distribution.train.worker_count
    if shared_batches.is_built_in(input_fn):
        return "", []
    takes_context = shared_batches.takes_input_context(input_fn)
    if not takes_context and not part.whole:
        shared_batches.check_divides(reading.size, replicas)
        if workers > 1:
            _check_order(reading, read_batches(make_spec()))
        return (
            f"{_global_batch(reading)}: {replicas} replicas share each batch of TrainSpec.input_fn, which takes no "
            f"`input_context`; to give each replica a whole batch, as plain TensorFlow does, declare {_INPUT_BATCH}: "
            f"{shared_batches.PER_REPLICA}"
        ), []
    size = part.reading.largest()[reading.names[-1]]
    declared = "" if takes_context else f" ({_INPUT_BATCH}: {shared_batches.PER_REPLICA})"
    made = f"TrainSpec.input_fn makes {size:,} for each of {replicas} replicas{declared}"
    warnings = []
    if takes_context and workers > 1:
        other = read_batches(make_spec(), _TRAIN, tf.distribute.InputContext(workers, 1, replicas))
        if all(map(_equal, part.reading.batches, other.batches)):
            warnings.append(
                "all workers train with the same examples: TrainSpec.input_fn takes `input_context`, and does not "
                "shard by its num_input_pipelines and input_pipeline_id"
            )
    return f"{_global_batch(part.reading, replicas)}: {made}", warnings


def _global_batch(reading: Reading, times: int = 1) -> str:
    varied = len({tuple(sizes.values()) for sizes in reading.sizes()}) > 1
    return f"global batch {'up to ' if varied else ''}{times * reading.largest()[reading.names[-1]]:,}"


def _check_order(reading: Reading, again: Reading) -> None:
    """Refuses batches that differ between workers: each reads every batch itself, and takes a consecutive part."""
    if reading.unordered:
        what = f"TrainSpec.input_fn makes batches in a nondeterministic order ({reading.unordered})"
    elif len(reading.batches) != len(again.batches) or not all(map(_equal, reading.batches, again.batches)):
        what = "TrainSpec.input_fn makes different batches in each call, despite RunConfig.tf_random_seed"
    else:
        return
    raise UserCodeError(
        f"{what}: the parts that the workers of multi_worker_mirrored take would belong to different batches; some "
        "examples would be trained twice, and others not at all",
        expected="the same batches in every worker",
        todo="shuffle with tf.data, which RunConfig.tf_random_seed seeds, not with `random` or NumPy, and set "
        "deterministic=True (or omit it) in interleave and map; or take `input_context`, and shard the data set; "
        "or declare the strategy mirrored, where one process reads; or give each worker batches of its own: declare "
        f"{_INPUT_BATCH}: {shared_batches.PER_REPLICA}",
    )


def _unordered(graph: tf.Graph) -> str:
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    for node in nodes:
        if "Dataset" in node.op and node.attr["deterministic"].s == _UNORDERED:
            return f"{node.op} with deterministic=False"
    return ""


def _equal(one: Batch, other: Batch) -> bool:
    pairs = [pair for sides in zip(one, other) for pair in zip(_arrays(sides[0]), _arrays(sides[1]))]
    return all(np.array_equal(*pair, equal_nan=pair[0].dtype.kind == "f") for pair in pairs)


def _arrays(value: Any) -> list[np.ndarray]:
    """Returns the component arrays of a dense, sparse or ragged value."""
    return [np.asarray(part) for part in nest.flatten(value, expand_composites=True)]
