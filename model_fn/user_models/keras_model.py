"""Inputs of a user's tf.keras.Model, and outputs of a served one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from traceback import extract_stack
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.user_source.frames import MADE_BY, is_users, reason, user_lines

Features = Mapping[str, tf.Tensor]
# Names of features, and of a served model's outputs; the Evaluator reads PROBABILITIES.
IMAGE = "image"
CLASSES, CLASS_IDS, LOGITS, PROBABILITIES = "classes", "class_ids", "logits", "probabilities"
# Close to the smallest normal float32.
_TINY = 1e-37


def is_compiled(model: tf.keras.Model) -> bool:
    """True for a model with its own loss and optimizer; False for a network, which uses the declared ones."""
    return bool(getattr(model, "_is_compiled", False)) and model.optimizer is not None


def is_subclassed(model: tf.keras.Model) -> bool:
    """True for a model that is neither functional nor a Sequential."""
    return not model._is_graph_network and not isinstance(model, tf.keras.Sequential)


def _input_names(model: tf.keras.Model) -> Optional[list[str]]:
    """Returns the names of a functional model's inputs, in order; None for a Sequential or subclassed model.

    As in Keras, these are the keys of a dict of inputs, regardless of the inputs' names; otherwise the inputs' names.
    """
    if isinstance(model, tf.keras.Sequential) or is_subclassed(model):
        return None
    return sorted(model.input) if isinstance(model.input, Mapping) else list(model.input_names)


@tf.autograph.experimental.do_not_convert
def inputs_of(model: tf.keras.Model, features: Features) -> Union[tf.Tensor, dict[str, tf.Tensor]]:
    """Selects a model's inputs among the features.

    A functional model gets the features that match its inputs' names, or the keys of its dict of inputs; if there is
    only one input, and no such feature, it gets the image or the only feature. A Sequential gets the image or the only
    feature. Any other model gets the image if that is the only feature, otherwise the dict of all.
    """
    inputs = select_inputs(model, features, _input_names(model))
    if model._is_graph_network:
        _refuse_rounding(model, inputs)
    return inputs


def select_inputs(
    model: tf.keras.Model, features: Features, names: Optional[list[str]]
) -> Union[tf.Tensor, dict[str, tf.Tensor]]:
    """Selects them for a model of any Keras; `names` are those of its inputs, None if it is not functional."""
    if names is None:
        sequential = isinstance(model, tf.keras.Sequential)
        if IMAGE in features and (sequential or len(features) == 1):
            return features[IMAGE]
        return next(iter(features.values())) if sequential and len(features) == 1 else dict(features)
    if len(names) == 1:
        # Its name first; then the only feature, or the image.
        for name in (names[0], IMAGE, *(features if len(features) == 1 else ())):
            if name in features:
                return {names[0]: features[name]} if isinstance(model.input, Mapping) else features[name]
    missing = [name for name in names if name not in features]
    if missing:
        first, keyed = sorted(features)[0], isinstance(model.input, Mapping)
        named = f"give the dict of inputs the features' names for keys, {{{first!r}: tf.keras.Input(...), ...}}"
        if not keyed:
            named = f"name the inputs as the features are, tf.keras.Input(..., name={first!r})"
        raise UserCodeError(
            f"the model's inputs are {'the dict of' if keyed else 'named'} {', '.join(names)}; the features are "
            f"{', '.join(sorted(features))}",
            expected=f"a feature for each input of the model, by its {'key' if keyed else 'name'}",
            todo=f"{named}; or return {' and '.join(missing)} from the preprocessing_fn",
        )
    return {name: features[name] for name in names}


def _refuse_rounding(model: tf.keras.Model, given: Any) -> None:
    """Refuses integer inputs for float features, which Keras would silently cast.

    That leaves next to nothing of standardised pixels. Integer features for float inputs lose nothing by the cast.
    """
    by_name = dict(model.input) if isinstance(model.input, Mapping) else dict(zip(model.input_names, model.inputs))
    named = given if isinstance(given, Mapping) else {next(iter(by_name)): given}
    for name, feature in named.items():
        kind, wanted = tf.as_dtype(feature.dtype), by_name[name].dtype if name in by_name else tf.float32
        if wanted.is_integer and kind.is_floating:
            raise UserCodeError(
                f"trainer.model: the model's input {name} is {wanted.name}, and its feature is {kind.name}: Keras "
                "would round each value to an integer, such as those of standardised pixels to 0, 1 and 2",
                expected=f"an input of {kind.name}, or a feature of {wanted.name}",
                todo=f"make the Input without dtype={wanted.name!r}; or have the preprocessing_fn return {wanted.name}",
            )


def identifying_feature(features: Features) -> tf.Tensor:
    """Returns what distinguishes examples: the image, or the first feature; of a table's columns, the bits of all."""
    if IMAGE in features:
        return features[IMAGE]
    numbers = [
        _bits(tf.reshape(features[name], [-1]))
        for name in sorted(features)
        if isinstance(features[name], tf.Tensor)
        and features[name].shape[1:].num_elements() == 1
        and (features[name].dtype.is_floating or features[name].dtype.is_integer or features[name].dtype == tf.string)
    ]
    first = features[min(features)]
    is_column = not isinstance(first, tf.Tensor) or first.shape[1:].num_elements() == 1
    return tf.stack(numbers, axis=1) if numbers and is_column else first


def _bits(column: tf.Tensor) -> tf.Tensor:
    if column.dtype == tf.string:
        return tf.cast(tf.strings.to_hash_bucket_fast(column, 2**31 - 1), tf.int32)
    return tf.bitcast(tf.cast(column, tf.float32), tf.int32)


def example(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features of a dummy example, or of two of a table, each [1 or 2, ...]; those of any length are empty.

    Of one value, Keras 2's lookups take the batch for the last dimension, and return [n] in place of [1, n].
    """
    count = 1 if IMAGE in spec else 2
    made = {name: _dummy(each, count) for name, each in spec.items()}
    return {name: each for name, each in made.items() if each is not None}


def _dummy(feature: Any, count: int) -> Any:
    if isinstance(feature, tf.io.FixedLenFeature):
        return tf.zeros([count, *feature.shape], feature.dtype)
    if isinstance(feature, tf.io.VarLenFeature):
        return tf.sparse.from_dense(tf.zeros([count, 1], feature.dtype))
    if isinstance(feature, tf.io.RaggedFeature) and not feature.partitions:
        return tf.RaggedTensor.from_row_lengths(tf.zeros([0], feature.dtype), [0] * count)
    return None


def build(model: tf.keras.Model, spec: Mapping[str, Any]) -> Any:
    """Creates a model's variables by calling it with dummy examples, and returns its outputs."""
    features = example(spec)
    inputs = inputs_of(model, features)
    with explained(features):
        return model(inputs, training=False)


@functools.cache
def note_makers() -> None:
    """Makes each layer know the user's line that makes it: a call of the layer fails far from that line."""
    make = tf.keras.layers.Layer.__new__

    def noting(cls: type, *args: Any, **kwargs: Any) -> Any:
        layer = make(cls, *args, **kwargs)
        layer.__dict__[MADE_BY] = next((each for each in extract_stack()[::-1] if is_users(each.filename)), None)
        return layer

    tf.keras.layers.Layer.__new__ = noting


@contextlib.contextmanager
def explained(features: Features) -> Iterator[None]:
    """Gives an error in a model's call the features' shapes, Keras's reason and the user's lines."""
    tf.debugging.disable_traceback_filtering()  # Keras would cut its layers out
    try:
        yield
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in features.items())
        what = f"the model cannot be called with a batch of the features, {shapes}: {': '.join(reason(error))}"
        raise UserCodeError(
            f"trainer.model: {what}\n{''.join(user_lines(error)[-3:])}".rstrip(),
            expected="a model that takes them; a layer whose variables depend on a shape needs that shape to be known",
            todo="correct the layer or the model's input; or have the preprocessing_fn return other shapes",
        ) from error


def require_scores(outputs: Any, num_classes: int) -> None:
    """Refuses a network without one score per class, with a clearer message than TensorFlow's.

    Args:
        outputs: The network's; unknown dimensions pass.
        num_classes: Number of classes in the data; 0 if unknown.
    """
    shape = outputs.shape if tf.is_tensor(outputs) else None
    if not num_classes or (shape is not None and shape.is_compatible_with([None, num_classes])):
        return
    if shape is None:
        what = f"returns a {type(outputs).__name__} of {len(tf.nest.flatten(outputs))}"
    elif shape.rank == 2:
        what = f"gives {shape[-1]} number{'s' if shape[-1] != 1 else ''} an example"
    else:
        what = f"gives numbers of the shape {list(shape[1:])} an example"
    raise UserCodeError(
        f"trainer.model: the network {what}; "
        + (f"the data have {num_classes} classes" if num_classes > 1 else "a regression asks for one"),
        expected=f"one output{', the logits' if num_classes > 1 else ''}, float [batch, {num_classes}]",
        todo="end it with Dense(num_classes), the function's first argument; or compile the model, on path keras",
    )


def require_trainable(model: tf.keras.Model) -> None:
    """Refuses a model with nothing to train."""
    if model.trainable_variables:
        return
    count = len(model.weights)
    frozen = f"all {count} are frozen, by trainable=False or trainer.freeze" if count else "it has none"
    raise UserCodeError(
        f"trainer.model: no variable of the network is trainable: {frozen}: each step would leave it as it is",
        expected="a layer with trainable weights, such as a Dense(num_classes) behind a frozen part",
        todo="set trainable=False only on the layers to freeze, not on the whole model; or leave it out",
    )


def reductions(model: tf.keras.Model) -> set[str]:
    """Returns the reductions of a compiled model's losses; `auto` for one that does not declare it."""
    return {getattr(each, "reduction", "auto") for each in tf.nest.flatten(model.loss) if each is not None}


def output_names(model: tf.keras.Model, count: int) -> list[str]:
    """Returns the names of a model's outputs, in the order in which TensorFlow flattens them.

    Returns:
        The keys of a functional model's dict of outputs, or the names of its last layers. For a subclassed model that
        returns a tuple, `output_1` and so on, as in Keras's own exports.
    """
    if is_subclassed(model) or not model.output_names:
        return [f"output_{number}" for number in range(1, count + 1)]
    return sorted(model.output) if isinstance(model.output, Mapping) else list(model.output_names)


def class_scores(outputs: Any, num_classes: int) -> Optional[tf.Tensor]:
    """Returns a model's only output if it is a score for each class, float [batch, num_classes]; else None."""
    flat = tf.nest.flatten(outputs)
    if len(flat) != 1 or flat[0].shape.rank != 2 or flat[0].shape[-1] != num_classes or num_classes < 2:
        return None
    return flat[0]


def predictions(
    scores: tf.Tensor, label_names: Sequence[str] = (), probabilities: bool = False
) -> dict[str, tf.Tensor]:
    """Returns a served model's outputs.

    Args:
        scores: float, [batch, num_classes].
        label_names: The classes' names, in the order of their labels; empty serves none.
        probabilities: True if the scores are probabilities, False if logits.

    Returns:
        `logits`, `probabilities`, `class_ids` (int64 [batch]) and, with names, `classes` (string [batch]).
    """
    scores = tf.cast(scores, tf.float32)
    class_ids = tf.argmax(scores, axis=-1)
    found = {
        LOGITS: tf.math.log(tf.maximum(scores, _TINY)) if probabilities else scores,
        PROBABILITIES: tf.identity(scores) if probabilities else tf.nn.softmax(scores),
        CLASS_IDS: class_ids,
    }
    if label_names:
        found[CLASSES] = tf.gather(tf.constant(list(label_names)), class_ids)
    return found


def served(
    outputs: Any, probabilities: bool, num_classes: int, label_names: Sequence[str] = ()
) -> dict[str, tf.Tensor]:
    """Returns a served compiled model's outputs: `predictions` for scores of the classes, else its outputs by name.

    Args:
        outputs: One tensor, or several by name.
    """
    scores = class_scores(outputs, num_classes)
    if scores is not None:
        return predictions(scores, label_names, probabilities)
    named = outputs if isinstance(outputs, Mapping) else {PROBABILITIES if probabilities else LOGITS: outputs}
    return {name: tf.identity(each) for name, each in named.items()}
