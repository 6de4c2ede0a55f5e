"""A network that cannot be called: Keras's reason, and the user's lines that made and called the layer."""

from __future__ import annotations

import importlib

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.task.user_code import call_network
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.user_models.keras_model import build
from tfx_estimator.pipeline.base.errors import UserCodeError

SEQUENTIAL = """
import tensorflow as tf


def network(num_classes):
    layers = tf.keras.layers
    flat = layers.Flatten()
    return tf.keras.Sequential([flat, layers.Reshape([100]), layers.Dense(num_classes)])
"""
SUBCLASSED = """
import tensorflow as tf


class Network(tf.keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.cut = tf.keras.layers.Reshape([100])
        self.dense = tf.keras.layers.Dense(num_classes)

    def call(self, images):
        cut = self.cut(images)
        return self.dense(cut)


def network(num_classes):
    return Network(num_classes)
"""


def _eagerly(network):
    build(network(), {"image": tf.io.FixedLenFeature([32, 32, 3], tf.float32)})


def _in_a_graph(network):
    with tf.Graph().as_default():
        features = {"image": tf.zeros([1, 32, 32, 3])}
        make_model_fn(lambda _: network())(features, None, "infer", {"num_classes": 10, "seed": 1})


@pytest.mark.parametrize("call", [_eagerly, _in_a_graph])
@pytest.mark.parametrize(
    ("source", "lines"),
    [(SEQUENTIAL, ["layers.Reshape([100])"]), (SUBCLASSED, ["self.cut = tf.keras", "cut = self.cut(images)"])],
)
def test_the_reason_and_the_users_lines_are_shown(importable, call, source, lines):
    name = f"reshaped_{len(source)}{call.__name__}"
    (importable / f"{name}.py").write_text(source)
    function = importlib.import_module(name).network
    with pytest.raises(UserCodeError, match=r"image \(1, 32, 32, 3\): ") as caught:
        call(lambda: call_network(function, 10, {}))
    first, *shown = caught.value.what.splitlines()
    # 3,072 values of an image, and 100.
    assert "3072" in first
    assert "100" in first
    for line in lines:
        number = next(number for number, text in enumerate(source.splitlines(), 1) if line in text)
        place = shown.index(f'  File "{importable / f"{name}.py"}", line {number}, in {_function(source, number)}')
        assert line in shown[place + 1]


def _function(source: str, number: int) -> str:
    above = source.splitlines()[:number]
    return next(line for line in reversed(above) if "def " in line).split("def ")[1].split("(")[0]
