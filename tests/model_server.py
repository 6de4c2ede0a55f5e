"""A stand-in for TensorFlow Serving's Predict API, by REST and gRPC, over a folder of versions.

It uses the messages of tensorflow-serving-api, and serves the newest version's signatures.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from tests.grpc_service import FakeService
from tests.http_service import Request, Service

_PATH = re.compile(r"/v1/models/(\w+)(?:/versions/(\d+))?:predict")


class ModelServer(Service):
    """Serves the newest version on local ports, after its warm-up requests; a context manager."""

    def __init__(self, base: Path, name: str) -> None:
        self.name, self.version = name, max(filter(str.isdigit, os.listdir(base)), key=int)
        folder = base / self.version
        self._model = tf.saved_model.load(str(folder))
        self.warmed = 0
        requests = folder / "assets.extra" / "tf_serving_warmup_requests"
        for record in tf.data.TFRecordDataset(str(requests)).as_numpy_iterator() if requests.exists() else ():
            self._predict(prediction_log_pb2.PredictionLog.FromString(record).predict_log.request)
            self.warmed += 1
        methods = {"Predict": (self._respond_grpc, predict_pb2.PredictRequest, predict_pb2.PredictResponse)}
        self._grpc = FakeService("tensorflow.serving.PredictionService", methods, workers=1)

    def __enter__(self) -> ModelServer:
        self._grpc.__enter__()
        self.grpc_port = self._grpc.port
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._grpc.__exit__(*error)
        super().__exit__()

    def respond(self, request: Request) -> None:
        request.answer(*self._respond_rest(request.path, json.loads(request.body())))

    def _call(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
        function = self._model.signatures[signature]
        specs = function.structured_input_signature[1]
        assert set(inputs) == set(specs)
        return function(**{name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()})

    def _predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for name, value in self._call(request.model_spec.signature_name or "serving_default", inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    def _respond_grpc(self, request: predict_pb2.PredictRequest, context: Any) -> predict_pb2.PredictResponse:
        import grpc

        if request.model_spec.name != self.name:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({request.model_spec.name})"
            )
        try:
            return self._predict(request)
        except tf.errors.InvalidArgumentError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)

    def _respond_rest(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = _PATH.fullmatch(path)
        if not found or found[1] != self.name or found[2] not in (None, self.version):
            return 404, {"error": f"Malformed request: POST {path}"}
        rows = [row if isinstance(row, dict) and "b64" not in row else None for row in body["instances"]]
        signature = self._model.signatures[body.get("signature_name", "serving_default")]
        (only,) = signature.structured_input_signature[1]
        values = [_decoded(row[only] if row else given) for row, given in zip(rows, body["instances"])]
        try:
            outputs = self._call(body.get("signature_name", "serving_default"), {only: np.array(values)})
        except tf.errors.InvalidArgumentError as error:
            return 400, {"error": error.message}
        columns = {name: _listed(value.numpy()) for name, value in outputs.items()}
        return 200, {"predictions": [dict(zip(columns, row)) for row in zip(*columns.values())]}


def _decoded(value: Any) -> Any:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def _listed(values: np.ndarray) -> list[Any]:
    return np.vectorize(bytes.decode, otypes=[object])(values).tolist() if values.dtype == object else values.tolist()
