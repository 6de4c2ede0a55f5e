"""A model whose inputs would round its features is refused: Keras casts them without a word."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit

PARAMS = {
    "num_classes": 3,
    "train_steps": 1,
    "global_batch_size": 2,
    "seed": 1,
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant"},
}


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _network(tf, form, dtype):
    layers = tf.keras.layers
    end = [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(3)]
    image = tf.keras.Input([4, 4, 1], name="pixels", dtype=dtype)
    if form == "sequential":
        return tf.keras.Sequential([image, *end])
    found = image
    for layer in end:
        found = layer(found)
    return tf.keras.Model({"image": image} if form == "dict" else image, found)


@pytest.mark.parametrize("path", ["keras", "keras, compiled", "estimator"])
@pytest.mark.parametrize("form", ["functional", "dict", "sequential"])
def test_one_of_integers_is_refused_for_features_of_floats(tf, monkeypatch, tmp_path, form, path):
    from tfx_estimator.components.trainer.keras import model
    from tfx_estimator.model_fn.classifier import make_model_fn
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    def network(num_classes):
        made = _network(tf, form, "uint8")
        if "compiled" in path:
            made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    maker = model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, spec)
    monkeypatch.setattr(model, "find_function", lambda _: network)
    estimator = tf.estimator.Estimator(make_model_fn(network), str(tmp_path), params=PARAMS)
    batch = {"image": np.ones([2, 4, 4, 1], np.float32)}, np.zeros(2, np.int64)
    look = {
        "keras": maker.make,
        "keras, compiled": maker.make,
        "estimator": lambda: estimator.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1),
    }[path]
    with pytest.raises(UserCodeError, match=r"the model's input \w+ is of uint8, and its feature of float32") as caught:
        look()
    assert caught.value.todo == "make the Input without dtype='uint8'; or have the preprocessing_fn return uint8"


@pytest.mark.parametrize(
    ("declared", "given"), [("float32", "uint8"), ("uint8", "uint8"), ("int32", "uint8"), ("float16", "float32")]
)
@pytest.mark.parametrize("form", ["functional", "dict", "sequential"])
def test_any_other_is_called(tf, form, declared, given):
    from tfx_estimator.model_fn.keras_model import build

    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], getattr(tf, given))}
    assert build(_network(tf, form, declared), spec).shape == [1, 3]
