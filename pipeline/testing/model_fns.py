"""Calls a model_fn as an Estimator does, and checks what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, TypedDict

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.bridge.kept.reach import ancestors
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.testing import new_folder

if TYPE_CHECKING:
    from typing_extensions import Unpack

_V1 = tf.compat.v1
# How averages of a normalisation are updated.
_AVERAGING = ("AssignSubVariableOp", "AssignSub")
_NOISE = 0.1


class Batch(TypedDict, total=False):
    """Examples for a model; by default made up, so that it learns them within a few steps: classes in turn.

    Args:
        features: Arrays [batch, …] by name, or one array; by default float32 [examples, *shape] from 0 to 1, named
            `image` if a shape has three dimensions, else `x`: a random pattern for each class, with noise.
        labels: An array [batch, …], or arrays by name; by default int64 [examples].
        shape: Shape of a made-up example, by default (28, 28, 1).
        classes: Number of made-up classes, by default 10.
        examples: Number of made-up examples, by default 32.
    """

    features: Any
    labels: Any
    shape: Sequence[int]
    classes: int
    examples: int


def make_batch(
    features: Any = None, labels: Any = None, shape: Sequence[int] = (28, 28, 1), classes: int = 10, examples: int = 32
) -> tuple[Any, Any]:
    """Returns the features and labels of a `Batch`."""
    if features is not None:
        return features, labels
    random = np.random.default_rng(1)
    patterns = random.integers(0, 2, (classes, *shape))
    own = np.arange(examples, dtype=np.int64) % classes
    noise = random.normal(0, _NOISE, (examples, *shape))
    values = np.clip(patterns[own] * (1 - 2 * _NOISE) + _NOISE + noise, 0, 1).astype(np.float32)
    return {"image" if len(shape) == 3 else "x": values}, own if labels is None else labels


@dataclasses.dataclass(frozen=True)
class Called:
    """What a model_fn returned, and its values for a batch.

    Args:
        spec: The EstimatorSpec; its tensors are in a graph that has been used.
        loss: Of the batch, before the training step; None in mode `infer`.
        step: The global step afterwards.
        predictions: Arrays [batch, …] by name, or one array; None if there are none.
        metrics: Those of mode `eval`, by name.
        variables: All variables afterwards, by name.
    """

    spec: Any
    loss: Optional[float]
    step: int
    predictions: Any
    metrics: dict[str, Any]
    variables: dict[str, np.ndarray]


def call_model_fn(
    model_fn: Any, mode: str = ModeKeys.TRAIN, params: Any = None, *, config: Any = None, **batch: Unpack[Batch]
) -> Called:
    """Calls a model_fn as an Estimator does, and runs what it returns on one batch.

    Args:
        model_fn: The function, or an Estimator.
        mode: One of tf.estimator.ModeKeys, `train`, `eval` or `infer`; `predict` is the last one.
        params: A dict, if the model_fn takes it.
        config: A tf.estimator.RunConfig.
        batch: A `Batch`: features, labels, shape, classes, examples.

    Returns:
        The EstimatorSpec with its values.

    Raises:
        AssertionError: The loss is not finite; or in mode `train` the global step does not grow by one, or averages,
            such as those of a batch normalisation, are not updated.
    """
    __tracebackhide__ = True
    estimator = estimator_of(model_fn, params, config)
    mode = ModeKeys.PREDICT if mode == "predict" else mode
    features, labels = make_batch(**batch)
    with tf.Graph().as_default() as graph:
        _V1.set_random_seed(1)
        step = _V1.train.get_or_create_global_step()
        labels = None if mode == ModeKeys.PREDICT or labels is None else _constants(labels)
        spec = estimator._call_model_fn(_constants(features), labels, mode, estimator.config)
        metrics = spec.eval_metric_ops or {}
        fetched = [spec.loss, spec.predictions, spec.train_op, [update for _, update in metrics.values()]]
        variables = {each.op.name: each for each in _V1.global_variables()}
        creator = _V1.train.ChiefSessionCreator(spec.scaffold)
        hooks = (*spec.training_hooks, *spec.training_chief_hooks) if mode == ModeKeys.TRAIN else ()
        with _V1.train.MonitoredSession(creator, hooks) as session:
            before = session.run(step)
            loss, predictions, *_ = session.run([() if each is None else each for each in fetched])
            after = session.run([step, {name: value for name, (value, _) in metrics.items()}, variables])
    assert np.isfinite(loss).all(), f"the loss is {loss} in mode {mode}, expected a finite number"
    if mode == ModeKeys.TRAIN:
        grown = after[0] - before
        assert grown == 1, (
            f"the global step grew by {grown}, expected 1: pass tf.compat.v1.train.get_global_step() once"
        )
        reached = ancestors([spec.train_op])
        left_out = [op for op in graph.get_operations() if op.type in _AVERAGING and op not in reached]
        assert not left_out, (
            f"the training step does not update {', '.join(sorted({op.inputs[0].op.name for op in left_out}))}: run "
            "the train_op with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))"
            "; of a Keras layer with its get_updates_for(None) and get_updates_for(inputs)"
        )
    loss = None if spec.loss is None else float(np.mean(loss))
    return Called(spec, loss, int(after[0]), None if spec.predictions is None else predictions, *after[1:])


def _constants(values: Any) -> Any:
    return tf.nest.map_structure(tf.constant, values, expand_composites=True)


def estimator_of(model_fn: Any, params: Any = None, config: Any = None, weights: Optional[str] = None) -> Any:
    """Returns an Estimator of a model_fn, by default in a folder of the test; one that is given is returned itself."""
    bring_back_estimator()
    if isinstance(model_fn, (tf.estimator.Estimator, _V1.estimator.Estimator)):
        return model_fn
    config = config or tf.estimator.RunConfig(tf_random_seed=1)
    named = {} if params is None else {"params": dict(params)}
    folder = config.model_dir or new_folder("model")
    return tf.estimator.Estimator(model_fn, folder, config, warm_start_from=weights, **named)
