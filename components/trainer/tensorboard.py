"""What `trainer.tensorboard` adds to the curves: the first images, as the network gets them, and histograms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

_CHANNELS = (1, 3, 4)
# The types that an image summary takes.
_WRITTEN = (tf.uint8, tf.float16, tf.float32, tf.float64)

InputFn = Callable[..., tf.data.Dataset]


def first_images(input_fn: InputFn, most: int) -> bytes:
    """Returns a serialized summary of the first batch's images; of other features, nothing."""
    found: Optional[dict[str, Any]] = None
    if tf.executing_eagerly():
        # On the Keras paths, where the Transform graph is loaded for eager mode.
        found = {name: each.numpy() for name, each in _images(next(iter(input_fn(ModeKeys.TRAIN)))).items()}
    # With threads of its own: those of the first session's options would be the training's.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0}, use_per_session_threads=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        if found is None:
            batches = tf.compat.v1.data.make_initializable_iterator(input_fn(ModeKeys.TRAIN))
            found = _images(batches.get_next())
            session.run([batches.initializer, tf.compat.v1.tables_initializer()])
        for name, values in found.items():
            tf.compat.v1.summary.image(f"first_batch/{name}", values, max_outputs=most)
        summary = tf.compat.v1.summary.merge_all()
        return b"" if summary is None else session.run(summary)


def _images(batch: tuple[Mapping[str, Any], Any]) -> dict[str, tf.Tensor]:
    """Returns the features that TensorBoard can show: [batch, height, width, 1, 3 or 4] of numbers."""
    found = {name: each for name, each in batch[0].items() if isinstance(each, tf.Tensor) and each.shape.rank == 4}
    shown = {name: each for name, each in found.items() if each.shape[3] in _CHANNELS and each.dtype != tf.string}
    return {name: each if each.dtype in _WRITTEN else tf.cast(each, tf.float32) for name, each in shown.items()}


def histograms(variables: Mapping[str, Any]) -> bytes:
    """Returns a serialized summary of the values of variables, by name."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.histogram.summary_v2 import histogram_pb

    summary = Summary()
    for name, values in variables.items():
        summary.MergeFrom(histogram_pb(name, values))
    return summary.SerializeToString()
