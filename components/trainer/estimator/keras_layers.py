"""What a model_fn makes with Keras: its layers are frozen as they are built, and its models find their weights."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.model_fn.user_models.freezing import Freezer, leave_out, refuse_updates
from tfx_estimator.pipeline.base.stack import keras2
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

# Of this thread: each replica calls the model_fn in one of its own.
_FREEZER: contextvars.ContextVar[Optional[Freezer]] = contextvars.ContextVar("freezer", default=None)
# The models made until the weights are read; None if no models are noted.
_noted: list[Optional[list[tf.keras.Model]]] = [None]


def freeze(estimator: tf.estimator.Estimator, patterns: Sequence[str], report: Callable[[str], None]) -> None:
    """Makes an Estimator train all variables but those that match.

    Args:
        report: Called with their number, in words.
    """
    for patch in _FREEZING:
        patch.apply()
    model_fn = estimator._model_fn

    @functools.wraps(model_fn)
    def frozen(*args: Any, **kwargs: Any) -> Any:
        # In every mode: a model_fn that makes its optimizer in each shall find the slots that the training has.
        freezer = Freezer(patterns)
        token = _FREEZER.set(freezer)
        try:
            with freezer.in_graph():
                spec = model_fn(*args, **kwargs)
        finally:
            _FREEZER.reset(token)
        context, trains = tf.distribute.get_replica_context(), kwargs.get("mode", ModeKeys.TRAIN) == ModeKeys.TRAIN
        if trains:
            refuse_updates(spec.train_op)
        # The other replicas get the variables of the first.
        if trains and (context is None or tf.get_static_value(context.replica_id_in_sync_group) == 0):
            report(freezer.check())
        return spec

    # An Estimator reads its arguments.
    frozen.__signature__ = inspect.signature(model_fn)  # type: ignore[attr-defined]
    estimator._model_fn = frozen


def _freeze_when_built(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    built = original(self, *args, **kwargs)
    freezer = _FREEZER.get()
    if freezer is not None:
        leave_out(freezer.freeze(self))
    return built


_FREEZING = tuple(
    Patch(
        f"{keras2.NAME}.src.engine.{module}:Layer._maybe_build",
        _freeze_when_built,
        reason="Keras lists a layer's variables as trainable, whatever the graph's collection says",
        until="there is no tf.estimator",
    )
    for module in ("base_layer", "base_layer_v1")
)


def note_models() -> None:
    """Notes the Keras models that are made from now on."""
    _NOTING.apply()
    _noted[0] = []


def noted_models() -> list[tf.keras.Model]:
    """Returns the models that have been noted, and notes no more."""
    found, _noted[0] = _noted[0], None
    return found or []


def _note(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    if _noted[0] is not None:
        _noted[0].append(self)


_NOTING = Patch(
    f"{keras2.NAME}.src.engine.training:Model.__init__",
    _note,
    reason="a file of Keras's newer format has no names, only the places of a model's layers",
    until="there is no tf.estimator",
)
