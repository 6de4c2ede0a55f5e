"""Asks a served model by gRPC: `python ask.py localhost:8500 digit.png …`.

`pip install tensorflow-serving-api` brings the messages; TFX has it already.
"""

import sys
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

server, *files = sys.argv[1:]  # localhost:8500 digit.png …
request = predict_pb2.PredictRequest()
request.model_spec.name, request.model_spec.signature_name = "digits", "encoded"
request.inputs["encoded"].CopyFrom(tf.make_tensor_proto([Path(file).read_bytes() for file in files]))
answers = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(server)).Predict(request, timeout=60)
for file, name, scores in zip(files, *(tf.make_ndarray(answers.outputs[key]) for key in ("classes", "probabilities"))):
    print(file, name.decode(), scores.max())
