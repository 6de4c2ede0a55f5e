"""By which operations a real SavedModel computes its scores."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


def _layers(name):
    import tensorflow as tf

    dense = tf.keras.layers.Dense
    return {
        "linear": [dense(4, activation="relu"), dense(3)],
        "one score": [dense(1)],
        "softmax": [dense(3, activation="softmax")],
        "softmax apart": [dense(3), tf.keras.layers.Softmax()],
        "sigmoid": [dense(1, activation="sigmoid")],
        "cast": [dense(3, dtype="mixed_bfloat16"), tf.keras.layers.Activation("linear", dtype="float32")],
        "reshaped": [dense(3), tf.keras.layers.Reshape((3,))],
        "bias by hand": [dense(3, use_bias=False), _own_bias()],
        "bias by hand, softmax": [dense(3, use_bias=False), _own_bias(), tf.keras.layers.Softmax()],
        "model within": [tf.keras.Sequential([dense(3)])],
        "no bias": [dense(4, activation="sigmoid"), dense(3, use_bias=False)],
        "confused": [dense(3, activation="softmax"), dense(3, use_bias=False)],
        "experts": [_experts()],
    }[name]


def _own_bias():
    import tensorflow as tf

    class Bias(tf.keras.layers.Layer):
        def build(self, shape):
            self.bias = self.add_weight("bias", [shape[-1]])

        def call(self, inputs):
            return inputs + self.bias

    return Bias()


def _experts():
    import tensorflow as tf

    inputs = tf.keras.Input([2])
    probabilities = [tf.keras.layers.Dense(3, activation="softmax")(inputs) for _ in range(2)]
    stacked = tf.stack(probabilities, 1)
    gates = tf.keras.layers.Dense(2, activation="softmax")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dot(axes=1)([gates, stacked]))


@pytest.mark.parametrize(
    ("name", "from_logits"),
    [
        ("linear", True),
        ("one score", True),
        ("softmax", False),
        ("softmax apart", False),
        ("sigmoid", False),
        ("cast", True),
        ("reshaped", True),
        ("bias by hand", True),
        ("bias by hand, softmax", False),
        ("model within", True),
        ("no bias", True),
        ("confused", False),
        ("experts", False),
    ],
)
@pytest.mark.parametrize("signature", ["of its own", "as Keras saves it"])
def test_logits_are_known_in_what_tensorflow_2_saves(tmp_path, name, from_logits, signature):
    import tensorflow as tf

    from tfx_estimator.components.served_outputs import choose_scores, read_outputs

    inputs = tf.keras.Input([2])
    model = tf.keras.Model(inputs, tf.keras.Sequential(_layers(name))(inputs))

    # As the module files of TFX's examples have it: parsing and a model within a signature.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        features = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return {"outputs": model(features["x"])}

    model.save(str(tmp_path), signatures={"serving_default": serve} if signature == "of its own" else None)
    outputs = read_outputs(str(tmp_path))
    classes = 2 if model.output_shape[-1] == 1 else 3
    scores = choose_scores(outputs, None, classes)
    assert scores.from_logits == from_logits
    assert scores.of_two == (classes == 2)


def test_what_an_argument_is_is_looked_for_where_the_function_is_called(tmp_path):
    import tensorflow as tf

    from tfx_estimator.components.served_outputs import read_outputs

    class Module(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable(tf.ones([2, 3]))

        @tf.function
        def last(self, scores, others):
            return tf.identity(others), tf.identity(scores)

        @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
        def serve(self, x):
            others, scores = self.last(tf.matmul(x, self.kernel), tf.nn.softmax(x))
            return {"a": others, "b": scores}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.serve})
    assert {each.name: each.operation for each in read_outputs(str(tmp_path))} == {"a": "Softmax", "b": "MatMul"}


def test_a_circle_is_no_reason_to_search_for_ever():
    from tensorflow.core.framework import graph_pb2

    from tfx_estimator.components.served_operations import Operations

    graph = graph_pb2.GraphDef()
    graph.node.add(name="a", op="Identity", input=["b"])
    graph.node.add(name="b", op="AddV2", input=["a", "a"])
    graph.node.add(name="c", op="Identity", input=["d"])
    graph.node.add(name="d", op="Identity", input=["c"])
    assert Operations(graph).of("a:0") == "AddV2"
    assert Operations(graph).of("c:0") == ""
    assert Operations(graph).of("nothing:0") == ""
