"""What is applied to a variable as a whole is refused where it would be applied to each of its parts."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _model(tf, rows=(3, 2), **options):
    """A Dense layer whose kernel is in parts of so many rows, as a partitioner leaves it."""
    from tensorflow.python.distribute.sharded_variable import ShardedVariable

    dense = tf.keras.layers.Dense(4, name="scores", **options)
    model = tf.keras.Sequential([tf.keras.Input([sum(rows)], name="image"), dense])
    parts = tf.split(tf.convert_to_tensor(dense.kernel), rows)
    made = [tf.Variable(part, constraint=dense.kernel.constraint) for part in parts]
    object.__setattr__(dense, "kernel", ShardedVariable(made) if len(made) > 1 else made[0])
    return model


@pytest.mark.parametrize(
    ("constraint", "refused"),
    [
        (lambda tf: tf.keras.constraints.UnitNorm(), True),
        (lambda tf: tf.keras.constraints.MaxNorm(3), True),
        (lambda tf: tf.keras.constraints.MinMaxNorm(0.01, 100), True),
        (lambda tf: lambda weights: weights - tf.reduce_mean(weights), True),
        (lambda tf: tf.keras.constraints.UnitNorm(axis=1), False),
        (lambda tf: tf.keras.constraints.MaxNorm(3, axis=1), False),
        (lambda tf: tf.keras.constraints.NonNeg(), False),
        (lambda tf: lambda weights: tf.clip_by_value(weights, -1, 1), False),
    ],
)
def test_a_constraint_of_the_whole_is_refused(tf, constraint, refused):
    from tfx_estimator.model_fn.parts import refuse_parts

    refuse_parts(_model(tf, (5,), kernel_constraint=constraint(tf)), "nets:mine")
    if not refused:
        refuse_parts(_model(tf, kernel_constraint=constraint(tf)), "nets:mine")
        return
    with pytest.raises(UserCodeError, match=r"the constraint .* of scores/kernel: Keras applies it to each part"):
        refuse_parts(_model(tf, kernel_constraint=constraint(tf)), "nets:mine")


@pytest.mark.parametrize(
    ("regularizer", "refused"),
    [
        (lambda tf: tf.keras.regularizers.OrthogonalRegularizer(0.1, "columns"), True),
        (lambda tf: tf.keras.regularizers.OrthogonalRegularizer(0.1, "rows"), True),
        (lambda tf: lambda weights: tf.norm(weights), True),
        (lambda tf: tf.keras.regularizers.L2(0.01), False),
        (lambda tf: tf.keras.regularizers.L1L2(0.1, 0.01), False),
    ],
)
def test_a_regularizer_of_the_whole_is_refused(tf, regularizer, refused):
    from tfx_estimator.model_fn.parts import refuse_parts

    if not refused:
        refuse_parts(_model(tf, kernel_regularizer=regularizer(tf)), "nets:mine")
        return
    with pytest.raises(UserCodeError, match=r"the regularizer .* of scores/kernel: Keras applies it to each part"):
        refuse_parts(_model(tf, kernel_regularizer=regularizer(tf)), "nets:mine")


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        (lambda tf: tf.keras.optimizers.SGD(clipnorm=1.0), "the clipnorm of its optimizer"),
        (lambda tf: tf.keras.optimizers.legacy.SGD(clipnorm=1.0), "the clipnorm of its optimizer"),
        (lambda tf: tf.keras.optimizers.Adafactor(), "its optimizer, Adafactor"),
        (lambda tf: tf.keras.optimizers.SGD(global_clipnorm=1.0), ""),
        (lambda tf: tf.keras.optimizers.legacy.Adam(clipvalue=1.0), ""),
    ],
)
def test_so_is_an_optimizer_of_whole_variables(tf, optimizer, told):
    from tfx_estimator.model_fn.parts import refuse_parts

    for rows in ((5,), (3, 2)):
        model = _model(tf, rows)
        model.compile(optimizer(tf), "sparse_categorical_crossentropy")
        if told and rows == (3, 2):
            with pytest.raises(UserCodeError, match=told):
                refuse_parts(model, "nets:mine")
        else:
            refuse_parts(model, "nets:mine")
