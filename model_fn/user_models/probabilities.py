"""Detects whether a user's tf.keras.Model outputs probabilities or logits, and which of them its loss takes."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.user_models.keras_model import is_subclassed
from tfx_estimator.pipeline.base.errors import UserCodeError

_SOFTMAX, _SIGMOID, _LINEAR = "softmax", "sigmoid", "linear"
# Activations that output probabilities.
_PROBABILITIES = (_SOFTMAX, _SIGMOID)
# Keras's losses that take probabilities unless from_logits is set.
_TAKE_PROBABILITIES = (
    tf.keras.losses.sparse_categorical_crossentropy,
    tf.keras.losses.categorical_crossentropy,
    tf.keras.losses.categorical_focal_crossentropy,
    tf.keras.losses.binary_crossentropy,
    tf.keras.losses.binary_focal_crossentropy,
)
# Those that, regardless of from_logits, detect such an activation and use its input.
_DETECT_ACTIVATION = (
    (tf.keras.losses.sparse_categorical_crossentropy, _SOFTMAX),
    (tf.keras.losses.binary_crossentropy, _SIGMOID),
)
# Number of dummy examples that a model is called with.
_EXAMPLES = 4
# Value of an input's unknown dimensions.
_ANY_SIZE = 32
# Tolerance of a sum of probabilities, for half precision.
_TOLERANCE = 1e-2


def refuse_probabilities(model: tf.keras.Model, outputs: Any) -> None:
    """Refuses a network that ends with a softmax: the loss and the served model apply their own."""
    activation = _last_activation(model)
    if activation in _PROBABILITIES:
        what = f"ends with {activation}"
    elif _sum_to_one(outputs) and (tried := _try(model)) is not None and _sum_to_one(tried):
        what = "outputs probabilities: for made-up examples they sum to 1"
    else:
        return
    raise UserCodeError(
        f"trainer.model: the network {what}: the loss takes logits, and would apply a second softmax to the "
        "probabilities, which trains badly and never gives a confident prediction",
        expected="logits, of any size: the served model returns the probabilities as well",
        todo="end it with Dense(num_classes), without an activation; or compile the model, on path keras",
    )


def _last_layer(model: tf.keras.Model) -> Any:
    """Returns the last layer of a Sequential, or of a functional model with one output; None if unknown."""
    last: Any = model
    while isinstance(last, tf.keras.Model):
        if isinstance(last, tf.keras.Sequential):
            last = last.layers[-1] if last.layers else None
        else:
            last = None if is_subclassed(last) or len(last.outputs) != 1 else last.outputs[0]._keras_history.layer
    return last


def _last_activation(model: tf.keras.Model) -> str:
    """Returns the name of the last layer's activation, or of the TensorFlow function that it is; empty if unknown."""
    last = _last_layer(model)
    if isinstance(last, tf.keras.layers.Softmax):
        return _SOFTMAX
    # In a functional model a TensorFlow function is a layer.
    symbol = str(getattr(last, "symbol", "")).rpartition(".")[2]
    return getattr(getattr(last, "activation", None), "__name__", symbol)


def gives_probabilities(model: tf.keras.Model) -> bool:
    """True if a compiled model's outputs are probabilities, by its loss, or else by outputs for dummy examples.

    Args:
        model: Compiled; one that has not been called is judged by its last layer.
    """
    by_loss = loss_takes_probabilities(model)
    return _outputs_probabilities(model) if by_loss is None else by_loss or _ignores_from_logits(model)


def _ignores_from_logits(model: tf.keras.Model) -> bool:
    """True if the loss has `from_logits=True`, but detects the activation that the model ends with."""
    loss = getattr(_only_loss(model), "fn", None)
    return loss_takes_probabilities(model) is False and (loss, _last_activation(model)) in _DETECT_ACTIVATION


def loss_takes_probabilities(model: tf.keras.Model) -> Optional[bool]:
    """True if a compiled model's loss takes probabilities, False for logits; None if unknown, as for a user's loss."""
    loss = _only_loss(model)
    kwargs = getattr(loss, "_fn_kwargs", None)
    found = kwargs.get("from_logits") if isinstance(kwargs, dict) else getattr(loss, "from_logits", None)
    if isinstance(found, bool):
        return not found
    # By identity, not by name: a user's function may be named like Keras's, and take logits.
    return True if any(loss is each for each in _TAKE_PROBABILITIES) else None


def _only_loss(model: tf.keras.Model) -> Any:
    losses = tf.nest.flatten(model.loss)
    loss = losses[0] if len(losses) == 1 else None
    return tf.keras.losses.get(loss) if isinstance(loss, str) else loss


def mismatch(model: tf.keras.Model) -> str:
    """Describes how a compiled model's loss does not fit its last activation; empty if it does."""
    if _ignores_from_logits(model):
        activation = _last_activation(model)
        return (
            f"has from_logits=True, and the model ends with {activation}: Keras trains on the input of the "
            f"{activation}, and the served model returns its probabilities. Leave either of them out"
        )
    last, loss = _last_layer(model), _only_loss(model)
    of_probabilities = loss_takes_probabilities(model) and getattr(loss, "fn", loss) in _TAKE_PROBABILITIES
    # A subclass of Dense may do anything.
    if of_probabilities and type(last) is tf.keras.layers.Dense and _last_activation(model) == _LINEAR:
        return (
            "takes probabilities, and the model ends with a Dense layer without an activation: Keras clips its outputs "
            "to between 0 and 1, with no gradient beyond, and serves them as probabilities. Give the loss "
            "from_logits=True, or the layer the activation softmax, or sigmoid for one number"
        )
    return ""


def assumed(model: tf.keras.Model) -> str:
    """Describes what a compiled model's outputs are taken for, if its loss does not define it; else empty."""
    shape = getattr(model, "output_shape", None) if not is_subclassed(model) and model.built else None
    if loss_takes_probabilities(model) is not None:
        return ""
    # A single number, or several outputs, are served as they are.
    if shape is not None and not (isinstance(shape, tuple) and shape[-1] != 1):
        return ""
    if gives_probabilities(model):
        return "they are probabilities for made-up examples, or by the last activation, and are served as such"
    return "they are taken for logits"


def _outputs_probabilities(model: tf.keras.Model) -> bool:
    """Judges by the outputs for dummy examples, wherever a softmax is in the model; then by the last layer."""
    if (outputs := _try(model)) is not None and _sum_to_one(outputs):
        return True
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    return getattr(activation, "__name__", "") in _PROBABILITIES


def _sum_to_one(outputs: Any) -> bool:
    """True if each row is a probability distribution."""
    if not tf.is_tensor(outputs) or not outputs.dtype.is_floating or not tf.executing_eagerly():
        return False
    found = tf.cast(outputs, tf.float32)
    off = tf.abs(tf.reduce_sum(found, axis=-1) - 1)
    return bool(tf.reduce_all(found >= 0)) and bool(tf.reduce_all(off < _TOLERANCE))


def _try(model: tf.keras.Model) -> Optional[tf.Tensor]:
    """Returns a model's output for dummy examples, [batch, 2 or more]; None if it has another form, or is unknown."""
    spec = model.save_spec()
    if spec is None or not tf.executing_eagerly():
        return None
    args, kwargs = tf.nest.map_structure(_dummy, spec)
    try:
        flat = tf.nest.flatten(model(*args, **{**kwargs, "training": False}))
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        # An unknown dimension may need another size than _ANY_SIZE.
        return None
    return flat[0] if len(flat) == 1 and flat[0].shape.rank == 2 and flat[0].shape[-1] != 1 else None


def _dummy(spec: tf.TensorSpec) -> tf.Tensor:
    """Returns reproducible noise; zeros for integers, which may be indices, and other types."""
    shape = [_EXAMPLES if place == 0 else size or _ANY_SIZE for place, size in enumerate(spec.shape)]
    if not spec.dtype.is_floating:
        return tf.zeros(shape, spec.dtype)
    return tf.cast(tf.random.stateless_uniform(shape, seed=(0, 0)), spec.dtype)
