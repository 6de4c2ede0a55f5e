"""Calls a model_fn as an Estimator does, and checks what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.bridge.kept.reach import ancestors
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.testing.arrays import given_or_made_up
from tfx_estimator.pipeline.testing.folders import new_folder

_V1 = tf.compat.v1
# How averages of a normalisation are updated.
_AVERAGING = ("AssignSubVariableOp", "AssignSub")


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
    model_fn: Any,
    mode: str = ModeKeys.TRAIN,
    params: Optional[Mapping[str, Any]] = None,
    *,
    features: Any = None,
    labels: Any = None,
    shape: Sequence[int] = (28, 28, 1),
    classes: int = 10,
    examples: int = 8,
    config: Any = None,
) -> Called:
    """Calls a model_fn as an Estimator does, and runs what it returns on one batch.

    Args:
        model_fn: The function, or an Estimator.
        mode: One of tf.estimator.ModeKeys, `train`, `eval` or `infer`; `predict` is the last one.
        params: The model_fn's own.
        features: Arrays [batch, …] by name, or one array; by default made-up ones of this shape.
        labels: An array [batch, …], or arrays by name; by default made-up classes, int64 [batch].
        shape: Shape of a made-up example, without the batch: named `image` if it has three dimensions, else `x`.
        classes: Number of the made-up classes.
        examples: Size of the made-up batch.
        config: A tf.estimator.RunConfig.

    Returns:
        The EstimatorSpec with its values.

    Raises:
        AssertionError: The loss is not finite; or in mode `train` the global step does not grow by one, or averages,
            such as those of a batch normalisation, are not updated.
    """
    __tracebackhide__ = True
    estimator = estimator_of(model_fn, params, config)
    mode = {"predict": ModeKeys.PREDICT}.get(mode, mode)
    features, labels = given_or_made_up(features, labels, shape, classes, examples)
    with tf.Graph().as_default() as graph:
        _V1.set_random_seed(1)
        step = _V1.train.get_or_create_global_step()
        tensors = [_constants(each) for each in (features, labels) if each is not None]
        given = (tensors[0], None if mode == ModeKeys.PREDICT or labels is None else tensors[1])
        spec = estimator._call_model_fn(*given, mode, estimator.config)
        metrics = spec.eval_metric_ops or {}
        hooks = (*spec.training_hooks, *spec.training_chief_hooks) if mode == ModeKeys.TRAIN else ()
        creator = _V1.train.ChiefSessionCreator(spec.scaffold)
        fetched = [spec.loss, spec.predictions, spec.train_op, {name: update for name, (_, update) in metrics.items()}]
        variables = {each.op.name: each for each in _V1.global_variables()}
        with _V1.train.MonitoredSession(creator, hooks) as session:
            before = session.run(step)
            loss, predictions, *_ = session.run([() if each is None else each for each in fetched])
            after, values, results = session.run(
                [step, variables, {name: value for name, (value, _) in metrics.items()}]
            )
    if spec.loss is not None:
        assert np.isfinite(loss).all(), f"the loss is {loss} in mode {mode}, expected a finite number"
    if mode == ModeKeys.TRAIN:
        grown = after - before
        assert grown == 1, (
            f"the global step grew by {grown}, expected 1: pass tf.compat.v1.train.get_global_step() once"
        )
        _check_averages(graph, spec.train_op)
    return Called(
        spec,
        None if spec.loss is None else float(np.mean(loss)),
        int(after),
        None if spec.predictions is None else predictions,
        results,
        values,
    )


def _constants(values: Any) -> Any:
    return tf.nest.map_structure(tf.constant, values, expand_composites=True)


def estimator_of(
    model_fn: Any, params: Optional[Mapping[str, Any]] = None, config: Any = None, weights: Optional[str] = None
) -> Any:
    """Returns an Estimator of a model_fn, by default in a folder of the test; one that is given is returned itself."""
    bring_back_estimator()
    if isinstance(model_fn, (tf.estimator.Estimator, _V1.estimator.Estimator)):
        return model_fn
    config = config or tf.estimator.RunConfig(tf_random_seed=1)
    named = {} if params is None else {"params": dict(params)}
    folder = config.model_dir or new_folder("model")
    return tf.estimator.Estimator(model_fn, folder, config, warm_start_from=weights, **named)


def _check_averages(graph: tf.Graph, train_op: tf.Operation) -> None:
    """Raises an AssertionError if the train_op leaves out updates of averages."""
    __tracebackhide__ = True
    reached = ancestors([train_op])
    left_out = [op for op in graph.get_operations() if op.type in _AVERAGING and op not in reached]
    names = sorted({op.inputs[0].op.name for op in left_out})
    assert not names, (
        f"the training step does not update {', '.join(names)}: run the train_op with "
        "tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)); of a Keras layer "
        "with its get_updates_for(None) and get_updates_for(inputs)"
    )
