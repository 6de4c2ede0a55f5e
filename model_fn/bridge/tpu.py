"""Trains what was written for a TPUEstimator on other devices, under any strategy."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.util import function_utils

from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

bring_back_estimator()

# What `params` have in addition, in this thread: a strategy calls the model_fn of each replica in one of its own.
_ADDED = threading.local()
# An attribute of a graph in which an input_fn was called.
_FED = "_tfx_estimator_fed"


class WithoutTpu(tf.estimator.Estimator):
    """An Estimator that calls a model_fn and an input_fn as a TPUEstimator with `use_tpu=False` does.

    An input_fn gets the batch size of its mode in `params`, and so does a model_fn, except for an export; under a
    strategy that is the size of the replica's own batch.

    Args:
        sizes: Mode -> batch size; None for a mode without one.
    """

    def __init__(self, model_fn: Callable[..., Any], sizes: dict[str, Optional[int]], **kwargs: Any) -> None:
        super().__init__(model_fn, **kwargs)
        self._sizes = sizes

    @property
    def params(self) -> Any:
        """See tf.estimator.Estimator."""
        from tensorflow_estimator.python.estimator.tpu import tpu_estimator

        params = super().params
        for name, value in getattr(_ADDED, "params", {}).items():
            # They may be HParams.
            tpu_estimator._add_item_to_params(params, name, value)
        return params

    @contextmanager
    def in_mode(self, mode: str, batch: Any = None) -> Iterator[None]:
        """Adds the batch size of a mode to `params`; that of a batch if it is given."""
        size = self._sizes.get(mode)
        if size is not None and batch is not None:
            leaves = (leaf for leaf in tf.nest.flatten(batch) if getattr(leaf, "shape", None) and leaf.shape.rank)
            static = [tf.compat.dimension_value(leaf.shape[0]) for leaf in leaves]
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            size = next((each for each in static if each is not None), size // replicas)
        _ADDED.params = {"use_tpu": False, **({} if size is None else {"batch_size": size})}
        try:
            yield
        finally:
            _ADDED.params = {}

    def rebuilt(self, config: tf.estimator.RunConfig) -> WithoutTpu:
        """Makes another one with a RunConfig."""
        settings = self._warm_start_settings
        return WithoutTpu(self._model_fn, self._sizes, config=config, params=self.params, warm_start_from=settings)

    def _assert_members_are_not_overridden(self) -> None: ...

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        setattr(tf.compat.v1.get_default_graph(), _FED, True)
        with self.in_mode(mode):
            return super()._call_input_fn(input_fn, mode, input_context)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        fed = hasattr(tf.compat.v1.get_default_graph(), _FED)
        with self.in_mode(mode if fed else "", features):
            return super()._call_model_fn(features, labels, mode, config)


def without_tpu(estimator: tf.estimator.Estimator) -> tf.estimator.Estimator:
    """Returns what trains a TPUEstimator's model_fn on other devices; any other Estimator, or one for a TPU, itself."""
    tpu = tf.compat.v1.estimator.tpu
    if not isinstance(estimator, tpu.TPUEstimator) or estimator._ctx._use_tpu:
        return estimator
    # Wrapped by TPUEstimator.
    own = inspect.getclosurevars(estimator._model_fn).nonlocals["model_fn"]
    sizes = {}
    for mode in (tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL, tf.estimator.ModeKeys.PREDICT):
        with estimator._ctx.with_mode(mode) as context:
            sizes[mode] = context.global_batch_size

    def model_fn(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        given = {"labels": labels, "mode": mode, "config": config, "params": params}
        spec = own(features, **{name: given[name] for name in given if name in function_utils.fn_args(own)})
        return spec.as_estimator_spec() if isinstance(spec, tpu.TPUEstimatorSpec) else spec

    settings = estimator._warm_start_settings
    return WithoutTpu(model_fn, sizes, config=estimator.config, params=estimator.params, warm_start_from=settings)


def params_in(estimator: tf.estimator.Estimator, mode: str) -> Any:
    """Returns the `params` that an input_fn gets in a mode."""
    if not isinstance(estimator, WithoutTpu):
        return estimator.params
    with estimator.in_mode(mode):
        return estimator.params
