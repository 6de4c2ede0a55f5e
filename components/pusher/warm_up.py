"""Warm-up requests, which TensorFlow Serving runs before a version is used, so that its first client need not wait.

They are written into `assets.extra`: a few real examples for each signature that takes examples, pixels or files.

Source: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
from tfx.dsl.io import fileio

from tfx_estimator.components.served_outputs import read_graphs
from tfx_estimator.data.features import ENCODED, EXAMPLES, IMAGE, IMAGES
from tfx_estimator.data.preprocessing import decode_images

FILE = "assets.extra/tf_serving_warmup_requests"
# A graph is initialised for the batch size as well: one, and more than one.
BATCHES = (1, 8)


def write_requests(saved_model: str, examples: str) -> None:
    """Adds the requests to a SavedModel, unless it has its own.

    Args:
        examples: Folder of files of tf.Examples.
    """
    path = os.path.join(saved_model, FILE)
    if fileio.exists(path):
        return
    signatures = read_graphs(saved_model)[0].signature_def
    requests = list(_requests(signatures, _first(examples, max(BATCHES))))
    if requests:
        fileio.makedirs(os.path.dirname(path))
        with tf.io.TFRecordWriter(path) as writer:
            for request in requests:
                log = prediction_log_pb2.PredictLog(request=request)
                record = prediction_log_pb2.PredictionLog(predict_log=log)
                writer.write(record.SerializeToString(deterministic=True))


def _first(folder: str, count: int) -> list[bytes]:
    files = sorted(tf.io.gfile.glob(os.path.join(folder, "*")))
    compression = "GZIP" if files and files[0].endswith(".gz") else ""
    return list(tf.data.TFRecordDataset(files, compression).take(count).as_numpy_iterator())


def _requests(
    signatures: Mapping[str, meta_graph_pb2.SignatureDef], records: list[bytes]
) -> Iterator[predict_pb2.PredictRequest]:
    """Yields the requests for the signatures that a declaration's Trainer exports."""
    inputs: dict[str, tuple[str, Any]] = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: (EXAMPLES, records)}
    if records and IMAGES in signatures:
        shape = [dim.size for dim in signatures[IMAGES].inputs[IMAGES].tensor_shape.dim][1:]
        parsed = tf.io.parse_example(records, {IMAGE: tf.io.FixedLenFeature([], tf.string)})
        images = decode_images(parsed[IMAGE], tuple(shape)).numpy()
        inputs[IMAGES] = (IMAGES, images)
        inputs[ENCODED] = (ENCODED, [tf.io.encode_png(image).numpy() for image in images])
    for name, (key, values) in sorted(inputs.items()):
        if name not in signatures or list(signatures[name].inputs) != [key]:
            continue
        for size in sorted({min(size, len(values)) for size in BATCHES} - {0}):
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            request.inputs[key].CopyFrom(tf.make_tensor_proto(values[:size]))
            yield request
