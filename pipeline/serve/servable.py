"""One loaded version of a model, with the calls of TensorFlow Serving's API."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.text import first_line, one_line
from tfx_estimator.pipeline.predict import model as models
from tfx_estimator.pipeline.predict.found_model import FoundModel
from tfx_estimator.pipeline.serve import values
from tfx_estimator.pipeline.serve.values import RequestError

DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_WARM_UP = os.path.join("assets.extra", "tf_serving_warmup_requests")
_METHODS = {"classify": "classification", "regress": "regression"}
# As TensorFlow Serving maps its codes; others are internal errors.
_STATUS = {3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 412, 11: 400, 12: 501, 14: 503}


class Servable:
    """A loaded version; its methods may be called from several threads.

    Args:
        found: The SavedModel, and what is known of it.
        version: Its number, from 1 on.

    Raises:
        TfxEstimatorError: It cannot be read, or loaded.
    """

    def __init__(self, found: FoundModel, version: int) -> None:
        self.found, self.version = found, version
        graph = models.read_graph(found.folder)
        self.signatures = {name: each for name, each in graph.signature_def.items() if not name.startswith("__")}
        self._loaded = models.load(found.folder)
        self.warmed = self._warm_up()

    def predict(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a request of `predict`."""
        name = document.get("signature_name") or DEFAULT
        inputs, is_rows = values.to_inputs(document, self._signature(name).inputs)
        return values.to_answer(self._call(name, inputs), is_rows)

    def score(self, document: Mapping[str, Any], method: str) -> dict[str, Any]:
        """Answers a request of `classify` or `regress`."""
        name = document.get("signature_name") or DEFAULT
        signature = self._signature(name)
        expected = f"tensorflow/serving/{method}"
        if signature.method_name != expected:
            raise RequestError(
                f"Expected {_METHODS[method]} signature method_name to be {expected}. Was: {signature.method_name}"
            )
        (argument,) = signature.inputs
        outputs = self._call(name, {argument: tf.constant(values.to_examples(document))})
        if method == "regress":
            (found,) = outputs.values()
            return {"results": values.to_json(found.reshape(-1))}
        scores = outputs.get("scores")
        labels = outputs.get("classes")
        either = labels if scores is None else scores
        assert either is not None
        labels = np.full(either.shape, b"", object) if labels is None else labels
        scores = np.zeros(either.shape, np.float32) if scores is None else scores
        rows = zip(values.to_json(labels), values.to_json(scores))
        return {"results": [[list(pair) for pair in zip(*row)] for row in rows]}

    def metadata(self, model: str) -> dict[str, Any]:
        """Answers a request for the model's metadata."""
        signatures = {
            name: json_format.MessageToDict(each, preserving_proto_field_name=True)
            for name, each in self.signatures.items()
        }
        spec = {"name": model, "signature_name": "", "version": str(self.version)}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}}

    @functools.cached_property
    def tried(self) -> models.Model:
        """The model as `predict` calls it; TfxEstimatorError if that knows no signature of it."""
        chosen = models.choose(self.found)
        models.check_pixels(chosen, None)
        return models.Model(chosen, loaded=self._loaded)

    def _signature(self, name: str) -> meta_graph_pb2.SignatureDef:
        if name not in self.signatures:
            raise RequestError(f'Serving signature name: "{name}" not found in signature def')
        return self.signatures[name]

    def _call(self, name: str, inputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        try:
            outputs = self._loaded.signatures[name](**inputs)
            return {key: each.numpy() for key, each in outputs.items()}
        except tf.errors.OpError as error:
            raise RequestError(first_line(error), _STATUS.get(error.error_code, 500)) from error
        except (TypeError, ValueError) as error:  # a shape that the signature does not take
            raise RequestError(first_line(error)) from error

    def _warm_up(self) -> int:
        """Calls the model with its warm-up requests; returns their number."""
        path, count = os.path.join(self.found.folder, _WARM_UP), 0
        if not tf.io.gfile.exists(path):
            return count
        try:
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
                self._call(request.model_spec.signature_name or DEFAULT, inputs)
                count += 1
        except Exception as error:  # a damaged record, or what the model raises
            raise PipelineError(
                f"{one_line(path)}: warm-up request {count} failed: {first_line(error)}",
                expected="requests that the model answers",
                todo="push the version again",
            ) from error
        return count
