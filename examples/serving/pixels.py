"""Turns a pushed model into a SavedModel from pixels to probabilities, and a file of TensorFlow Lite.

The signatures begin with operations on bytes, which neither TensorFlow Lite nor ONNX has: they are cut off.
"""

import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

folder, target = sys.argv[1:]  # runs/digits/serving/1795311407 pixels
model = tf.saved_model.load(folder)
served = model.signatures["images"]
frozen = convert_variables_to_constants_v2(served)
graph, output = frozen.graph.as_graph_def(), frozen.outputs[sorted(served.structured_outputs).index("probabilities")]
read = [node for node in graph.node if node.op == "DecodeRaw"][-1]
taken = tf.compat.v1.NodeDef(name=read.name, op="Placeholder")
taken.attr["dtype"].type = tf.uint8.as_datatype_enum
read.CopyFrom(taken)
graph = tf.compat.v1.graph_util.extract_sub_graph(graph, [output.op.name])
shape = served.structured_input_signature[1]["images"].shape


def answer(images):
    flat = {f"{taken.name}:0": tf.reshape(images, [-1, shape[1:].num_elements()])}
    return {"probabilities": tf.graph_util.import_graph_def(graph, flat, [output.name])[0]}


small = tf.Module()
small.answer = tf.function(answer, input_signature=[tf.TensorSpec(shape, tf.uint8, "images")])
tf.saved_model.save(small, target, signatures=small.answer)
tflite = tf.lite.TFLiteConverter.from_saved_model(target).convert()
Path(f"{target}.tflite").write_bytes(tflite)
