"""A clipnorm is refused where it would be of each part of a variable."""

from __future__ import annotations

import contextlib

import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _model(tf, rows):
    """A Dense layer whose kernel is in parts of so many rows, as a partitioner leaves it."""
    from tensorflow.python.distribute.sharded_variable import ShardedVariable

    dense = tf.keras.layers.Dense(4)
    model = tf.keras.Sequential([tf.keras.Input([sum(rows)], name="image"), dense])
    made = [tf.Variable(part) for part in tf.split(tf.convert_to_tensor(dense.kernel), rows)]
    object.__setattr__(dense, "kernel", ShardedVariable(made) if len(made) > 1 else made[0])
    return model


@pytest.mark.parametrize(
    ("optimizer", "refused"),
    [
        (lambda tf: tf.keras.optimizers.SGD(clipnorm=1.0), True),
        (lambda tf: tf.keras.optimizers.legacy.SGD(clipnorm=1.0), True),
        (lambda tf: tf.keras.optimizers.SGD(global_clipnorm=1.0), False),
        (lambda tf: tf.keras.optimizers.legacy.Adam(clipvalue=1.0), False),
    ],
)
def test_a_norm_of_whole_variables_is_refused(tf, optimizer, refused):
    from tfx_estimator.model_fn.parts import refuse_clipped_parts

    for rows in ((5,), (3, 2)):
        model = _model(tf, rows)
        model.compile(optimizer(tf), "sparse_categorical_crossentropy")
        is_wrong = refused and len(rows) > 1
        with pytest.raises(UserCodeError, match="clipnorm") if is_wrong else contextlib.nullcontext():
            refuse_clipped_parts(model, "nets:mine")
