"""How a served model and TFMA feed images into the Transform graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.preprocessing import decode_images
from tfx_estimator.data.serving import EXAMPLES, IMAGES, encode_images

Transform = Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]


def serving_receiver_fn(
    feature_spec: dict[str, Any], transform: Transform, image_shape: tuple[int, int, int]
) -> Callable[[], tf.estimator.export.ServingInputReceiver]:
    """Makes the receiver of serving: serialized tf.Examples, or uint8 images, through the same Transform graph.

    Returns:
        A `serving_input_receiver_fn`: `serving_default` takes `examples`, string [batch]; `images` takes `images`,
        uint8 [batch, height, width, channels].
    """

    def serving_input_receiver_fn() -> tf.estimator.export.ServingInputReceiver:
        examples = tf.compat.v1.placeholder(tf.string, [None], name=EXAMPLES)
        parsed = tf.io.parse_example(examples, {IMAGE: feature_spec[IMAGE]})
        # Both inputs go through this tensor, so that any preprocessing_fn sees the bytes that it saw in training.
        images = tf.identity(decode_images(parsed[IMAGE], image_shape), name=IMAGES)
        encoded = tf.reshape(encode_images(images), [-1, *feature_spec[IMAGE].shape])
        features = transform({IMAGE: encoded})
        return tf.estimator.export.ServingInputReceiver(features, {EXAMPLES: examples}, {IMAGES: {IMAGES: images}})

    return serving_input_receiver_fn


def eval_receiver_fn(feature_spec: dict[str, Any], transform: Transform) -> Callable[[], Any]:
    """Makes the receiver of the EvalSavedModel.

    Returns:
        An `eval_input_receiver_fn` for `tfma.export.export_eval_savedmodel`.
    """

    def eval_input_receiver_fn() -> Any:
        from tensorflow_model_analysis.eval_saved_model import export as tfma_export

        examples = tf.compat.v1.placeholder(tf.string, [None], name=EXAMPLES)
        features = transform(tf.io.parse_example(examples, feature_spec))
        return tfma_export.EvalInputReceiver(
            features=features, labels=features.pop(LABEL), receiver_tensors={EXAMPLES: examples}
        )

    return eval_input_receiver_fn
