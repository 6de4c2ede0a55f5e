"""What is said of a compiled model of the user's."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "declared", "said"),
    [
        ({}, [], []),
        ({"jit_compile": True}, [], ["jit_compile=True has no effect, in the compile of own:net"]),
        ({"run_eagerly": True}, ["trainer.seed"], ["run_eagerly=True has no effect, in the compile of own:net"]),
        (
            {},
            ["trainer.optimizer.name", "trainer.seed"],
            ["trainer.optimizer.name has no effect: the compiled model of own:net brings its own"],
        ),
    ],
)
def test_what_has_no_effect_is_told(options, declared, said):
    import tensorflow as tf

    from tfx_estimator.components.trainer.compiled_notices import compiled_notices

    model = tf.keras.Sequential([tf.keras.layers.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy", **options)
    first, *more = compiled_notices(model, TrainerSection(model="own:net", train_steps=1), declared)
    assert first == (
        "own:net returns a compiled model: it is trained by its own optimizer, SGD, and loss, "
        "sparse_categorical_crossentropy"
    )
    assert more == said


@pytest.mark.parametrize(
    ("last", "taken"),
    [
        (None, "they are taken for logits. A loss of tf.keras.losses with from_logits=… tells it"),
        ("softmax", "they are probabilities in made-up examples"),
        ("one number", ""),
    ],
)
def test_it_is_said_what_outputs_are_taken_for_where_the_loss_does_not_tell(last, taken):
    import tensorflow as tf

    from tfx_estimator.components.trainer.compiled_notices import compiled_notices

    def own_crossentropy(labels, outputs):
        return outputs

    dense = tf.keras.layers.Dense(1 if last == "one number" else 3, activation="softmax" if last == "softmax" else None)
    model = tf.keras.Sequential([dense])
    model.compile("sgd", own_crossentropy)
    model(tf.zeros([1, 4]))
    said = compiled_notices(model, TrainerSection(model="own:net", train_steps=1), [])[1:]
    if not taken:
        assert not said
        return
    (told,) = said
    assert told.startswith(
        "the loss of own:net, own_crossentropy, does not tell whether the model's outputs are logits or probabilities: "
    )
    assert taken in told
