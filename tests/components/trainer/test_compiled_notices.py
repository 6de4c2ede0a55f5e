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
