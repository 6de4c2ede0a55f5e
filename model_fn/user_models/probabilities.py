"""Tells whether a tf.keras.Model of the user's puts out probabilities or logits, and which of them its loss is of."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.user_models.keras_model import is_subclassed
from tfx_estimator.pipeline.base.errors import UserCodeError

_SOFTMAX, _SIGMOID, _LINEAR = "softmax", "sigmoid", "linear"
# Activations of a last layer: what they leave are probabilities.
_PROBABILITIES = (_SOFTMAX, _SIGMOID)
# Keras's own losses that take probabilities, unless told otherwise.
_TAKE_PROBABILITIES = (
    tf.keras.losses.sparse_categorical_crossentropy,
    tf.keras.losses.categorical_crossentropy,
    tf.keras.losses.categorical_focal_crossentropy,
    tf.keras.losses.binary_crossentropy,
    tf.keras.losses.binary_focal_crossentropy,
)
# Those of them that look for such an activation, whatever they were told, and take what it was given.
_LOOK_BEFORE = (
    (tf.keras.losses.sparse_categorical_crossentropy, _SOFTMAX),
    (tf.keras.losses.binary_crossentropy, _SIGMOID),
)
# Examples that a model is called with, to see what it puts out.
_TRIED = 4
# In the place of a size that an input leaves open.
_ANY_SIZE = 32
# Of a sum of probabilities in half precision.
_CLOSE_TO_ONE = 1e-2


def refuse_probabilities(model: tf.keras.Model, outputs: Any) -> None:
    """Refuses a network that ends with a softmax: the loss has its own, and so has what is served."""
    activation = _last_activation(model)
    if activation in _PROBABILITIES:
        what = f"ends with {activation}"
    elif _add_up_to_one(outputs) and (made := _try(model)) is not None and _add_up_to_one(made):
        what = "puts out probabilities: of made-up examples they add up to 1"
    else:
        return
    raise UserCodeError(
        f"trainer.model: the network {what}: the loss of a network is of logits, and would be that of a softmax of "
        "probabilities, which trains badly and is never sure of anything",
        expected="logits, of any size: what is served has the probabilities beside them",
        todo="end it with Dense(num_classes), without an activation; or compile the model, on path keras",
    )


def _last_layer(model: tf.keras.Model) -> Any:
    """What a Sequential or a functional model of one output ends with; None if that is not known."""
    last: Any = model
    while isinstance(last, tf.keras.Model):
        if isinstance(last, tf.keras.Sequential):
            last = last.layers[-1] if last.layers else None
        else:
            last = None if is_subclassed(last) or len(last.outputs) != 1 else last.outputs[0]._keras_history.layer
    return last


def _last_activation(model: tf.keras.Model) -> str:
    """What the last layer of a Sequential or of a functional model ends with; empty if that is not known."""
    last = _last_layer(model)
    if isinstance(last, tf.keras.layers.Softmax):
        return _SOFTMAX
    # A function of TensorFlow's is a layer in a functional model.
    symbol = str(getattr(last, "symbol", "")).rpartition(".")[2]
    return getattr(getattr(last, "activation", None), "__name__", symbol)


def gives_probabilities(model: tf.keras.Model) -> bool:
    """Tells whether a compiled model's outputs are probabilities: by its loss, or else by what it puts out.

    Args:
        model: Compiled; one that has not been called is judged by its last layer.
    """
    told = told_by_loss(model)
    return _puts_out_probabilities(model) if told is None else told or _is_looked_before(model)


def _is_looked_before(model: tf.keras.Model) -> bool:
    """Has its loss `from_logits=True`, and it ends with an activation that the loss looks for."""
    loss = getattr(_only_loss(model), "fn", None)
    return told_by_loss(model) is False and (loss, _last_activation(model)) in _LOOK_BEFORE


def told_by_loss(model: tf.keras.Model) -> Optional[bool]:
    """Is a compiled model's loss of probabilities; None if it does not say, as a function of the user's."""
    loss = _only_loss(model)
    kwargs = getattr(loss, "_fn_kwargs", None)
    found = kwargs.get("from_logits") if isinstance(kwargs, dict) else getattr(loss, "from_logits", None)
    if isinstance(found, bool):
        return not found
    # By the function, and not by its name: one of the user's may be named as Keras's, and be of logits.
    return True if any(loss is each for each in _TAKE_PROBABILITIES) else None


def _only_loss(model: tf.keras.Model) -> Any:
    losses = tf.nest.flatten(model.loss)
    loss = losses[0] if len(losses) == 1 else None
    return tf.keras.losses.get(loss) if isinstance(loss, str) else loss


def mismatch(model: tf.keras.Model) -> str:
    """Says how a compiled model's loss does not fit the activation that it ends with; empty where it does."""
    if _is_looked_before(model):
        activation = _last_activation(model)
        return (
            f"has from_logits=True, and the model ends with {activation}: Keras trains by what the {activation} is "
            "given, and what is served are its probabilities. Leave either of them out"
        )
    last, loss = _last_layer(model), _only_loss(model)
    of_probabilities = told_by_loss(model) and getattr(loss, "fn", loss) in _TAKE_PROBABILITIES
    # One of a class of the user's may do anything.
    if of_probabilities and type(last) is tf.keras.layers.Dense and _last_activation(model) == _LINEAR:
        return (
            "is of probabilities, and the model ends with a Dense layer without an activation: Keras cuts what it puts "
            "out to between 0 and 1, with no gradient beyond, and serves it as probabilities. Give the loss "
            "from_logits=True, or the layer the activation softmax, or sigmoid for one number"
        )
    return ""


def assumed(model: tf.keras.Model) -> str:
    """Says what a compiled model's outputs are taken for, if its loss does not tell; empty where it does."""
    shape = getattr(model, "output_shape", None) if not is_subclassed(model) and model.built else None
    # Of one number, or of several outputs, nothing is made.
    if told_by_loss(model) is not None or (shape is not None and not (isinstance(shape, tuple) and shape[-1] != 1)):
        return ""
    if gives_probabilities(model):
        return "they are probabilities in made-up examples, or by the last activation, and are served as such"
    return "they are taken for logits"


def _puts_out_probabilities(model: tf.keras.Model) -> bool:
    """Looks at what comes out of made-up examples, wherever in the model a softmax is; then at the last layer."""
    if (outputs := _try(model)) is not None and _add_up_to_one(outputs):
        return True
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    return getattr(activation, "__name__", "") in _PROBABILITIES


def _add_up_to_one(outputs: Any) -> bool:
    """Is each row a distribution."""
    if not tf.is_tensor(outputs) or not outputs.dtype.is_floating or not tf.executing_eagerly():
        return False
    found = tf.cast(outputs, tf.float32)
    off = tf.abs(tf.reduce_sum(found, axis=-1) - 1)
    return bool(tf.reduce_all(found >= 0)) and bool(tf.reduce_all(off < _CLOSE_TO_ONE))


def _try(model: tf.keras.Model) -> Optional[tf.Tensor]:
    """Returns what a model puts out of made-up examples, [batch, 2 or more]; None if that is not so, or unknown."""
    spec = model.save_spec()
    if spec is None or not tf.executing_eagerly():
        return None
    args, kwargs = tf.nest.map_structure(_made_up, spec)
    try:
        flat = tf.nest.flatten(model(*args, **{**kwargs, "training": False}))
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        # An input of an open size may need another one.
        return None
    return flat[0] if len(flat) == 1 and flat[0].shape.rank == 2 and flat[0].shape[-1] != 1 else None


def _made_up(spec: tf.TensorSpec) -> tf.Tensor:
    """Noise that is always the same; zeros where numbers may stand for something."""
    shape = [_TRIED if place == 0 else size or _ANY_SIZE for place, size in enumerate(spec.shape)]
    if not spec.dtype.is_floating:
        return tf.zeros(shape, spec.dtype)
    return tf.cast(tf.random.stateless_uniform(shape, seed=(0, 0)), spec.dtype)
