"""Exports a checkpoint with the signatures that an Estimator's export has, to the name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.trackable.resource import CapturableResource

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saver import restore_weights
from tfx_estimator.data.features import EXAMPLES, IMAGE, IMAGES
from tfx_estimator.data.preprocessing import decode_images, encode_images

# Of a compiled model, with variables that no answer depends on.
_OPTIMIZERS = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)


class ServedModel(tf.Module):
    """A model with the Transform graph before it.

    Args:
        declared: The input of the declaration.
        image_shape: Of the raw images: height, width, channels.
        label_names: The classes, in the order of their labels.
    """

    def __init__(
        self,
        model: Any,
        declared: DeclaredInput,
        image_shape: tuple[int, int, int],
        label_names: Sequence[str],
    ) -> None:
        super().__init__(name="served_model")
        # What it reads alone, not the model: Keras would trace all of it once more.
        self.weights = list(model.weights)
        parts = list(_parts(model))
        self.resources = [each for each in parts if isinstance(each, (tf.Variable, CapturableResource))]
        self._metrics = [each for each in parts if isinstance(each, tf.keras.metrics.Metric)]
        self._answers = functools.partial(model.answers, label_names=list(label_names))
        self._transform = declared.transform_output.transform_features_layer()
        self._raw = declared.feature_spec[IMAGE]
        self._image_shape = image_shape

    def from_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies serialized tf.Examples, string [batch]."""
        parsed = tf.io.parse_example(examples, {IMAGE: self._raw})
        return self.from_images(decode_images(parsed[IMAGE], self._image_shape))

    def from_images(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies images, uint8 [batch, height, width, channels]."""
        # Both inputs go this way, so that any preprocessing_fn sees the bytes that it saw in training.
        encoded = tf.reshape(encode_images(images), [-1, *self._raw.shape])
        return self._answers(self._transform({IMAGE: encoded}))

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Returns what is served, by name."""
        examples = tf.TensorSpec([None], tf.string, EXAMPLES)
        images = tf.TensorSpec([None, *self._image_shape], tf.uint8, IMAGES)
        with _counting_nothing(self._metrics):
            traced = {
                tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.function(self.from_examples).get_concrete_function(
                    examples
                ),
                IMAGES: tf.function(self.from_images).get_concrete_function(images),
            }
        # The result of a metric that `call` asks for is read, if nobody uses it.
        kept = {id(each) for each in (*self.weights, *self.resources)}
        read = {id(each): each for function in traced.values() for each in function.graph.variables}
        self.resources += [each for key, each in read.items() if key not in kept]
        return traced


@contextlib.contextmanager
def _counting_nothing(metrics: Sequence[tf.keras.metrics.Metric]) -> Iterator[None]:
    """Has what is traced write no state: the `call` of a model updates the metrics of add_metric at inference too."""

    def update_state(*args: Any, **kwargs: Any) -> None:
        pass

    updates = [each.update_state for each in metrics]
    for each in metrics:
        object.__setattr__(each, "update_state", update_state)
    try:
        yield
    finally:
        for each, update in zip(metrics, updates):
            object.__setattr__(each, "update_state", update)


def _parts(model: tf.keras.Model) -> Iterator[Any]:
    """What a model consists of: no function can be exported without the variables and tables that it reads.

    Not all are weights to Keras: vocabularies, and what a model that a layer has loaded from a SavedModel keeps.
    """
    seen, left = {id(model): model}, [model]
    while left:
        each = left.pop()
        yield each
        # What is within a metric counts for evaluations alone.
        if not isinstance(each, (tf.Variable, CapturableResource, tf.keras.metrics.Metric, *_OPTIMIZERS)):
            # Keras does not track those that add_metric makes.
            metrics = each._metrics if isinstance(each, tf.keras.layers.Layer) else ()
            children = [*tf.train.TrackableView.children(each).values(), *metrics]
            new = {id(child): child for child in children if id(child) not in seen}
            seen |= new
            left += new.values()


def export_model(
    maker: ModelMaker,
    checkpoint: str,
    declared: DeclaredInput,
    image_shape: tuple[int, int, int],
    label_names: Sequence[str],
    folder: str,
) -> None:
    """Writes the SavedModel of a checkpoint."""
    model = maker.make()
    restore_weights(model, checkpoint)
    served = ServedModel(model, declared, image_shape, label_names)
    tf.saved_model.save(served, folder, signatures=served.signatures())
