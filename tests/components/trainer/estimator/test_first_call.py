"""What a network's function comes to when it is called outside of the Estimator's graph, and then in it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.first_call import call_first
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit

SETTINGS = Settings(declaration={"trainer": {"model": "own:network"}}, label_names=("a", "b"))


@pytest.mark.parametrize("where", ["outside of the graph", "in the graph alone"])
def test_a_compiled_model_is_refused_and_who_trains_it_is_told(where):
    def compiled(num_classes: int) -> tf.keras.Model:
        if where == "in the graph alone" and tf.executing_eagerly():
            raise ValueError("only there")
        model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(num_classes)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def look() -> None:
        first = call_first(compiled, SETTINGS, {})
        with tf.Graph().as_default():
            first.call_again(compiled, 2, {})

    with pytest.raises(UserCodeError, match="the function returns a compiled Keras model") as caught:
        look()
    for way in ("trainer.path: keras", "load_model(path, compile=False)", "tf.keras.estimator.model_to_estimator"):
        assert way in caught.value.todo
