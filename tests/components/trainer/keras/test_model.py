"""The notices of a user's compiled model."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.model import compiled_notices
from tfx_estimator.pipeline.config.trainer import TrainerSection

SECTION = TrainerSection(model="own:net", train_steps=1, path="keras")


def test_notices_name_its_own_parts_and_options_without_effect():
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert compiled_notices(model, SECTION, ["trainer.optimizer.name", "trainer.seed"]) == [
        "own:net returns a compiled model: it is trained by its own optimizer, SGD, and loss, "
        "sparse_categorical_crossentropy",
        "trainer.optimizer.name has no effect: the compiled model of own:net has its own",
    ]


def own_crossentropy(labels, outputs):
    return outputs


OF_LOGITS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
OF_PROBABILITIES = tf.keras.losses.SparseCategoricalCrossentropy()


@pytest.mark.parametrize(
    ("loss", "units", "last", "notice"),
    [
        (own_crossentropy, 3, None, "own_crossentropy, does not tell .* or probabilities: they are taken for logits"),
        (own_crossentropy, 3, "softmax", "own_crossentropy, does not tell .*: they are probabilities for made-up"),
        (own_crossentropy, 1, None, ""),
        (OF_LOGITS, 3, "softmax", "has from_logits=True, and the model ends with softmax"),
        (OF_PROBABILITIES, 3, None, "takes probabilities, and the model ends"),
    ],
)
def test_a_notice_names_an_unclear_or_unsuitable_loss(loss, units, last, notice):
    model = tf.keras.Sequential([tf.keras.Input([4], name="image"), tf.keras.layers.Dense(units, activation=last)])
    model.compile("sgd", loss)
    notices = compiled_notices(model, SECTION, [])[1:]
    assert len(notices) == bool(notice)
    if notice:
        assert re.match(f"the loss of own:net, .*{notice}", notices[0])
