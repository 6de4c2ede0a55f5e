"""The layers that train equally on one device and on several; tests/equivalence trains them on several."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.layers import PooledConv2D, StatelessDropout, SynchronizedBatchNormalization, dropout_keys
from tfx_estimator.model_fn.user_models.keras_model import identifying_feature
from tfx_estimator.pipeline.base.errors import UserCodeError

RANDOM = np.random.default_rng(11)
IMAGES = RANDOM.integers(0, 256, size=(64, 8, 8, 3)).astype(np.float32)


@pytest.mark.unit
@pytest.mark.timeout(180)
def test_synchronized_normalisation_equals_keras_for_any_mean(codes):
    found = codes.answers("-m", "tests.model_fn.normalisation_process")
    assert len(found) == 16
    for mean, rank, devices, differences in found:
        # A few units in the last place of float32 numbers of that size; the spread is 1.
        assert max(differences) <= 3e-6 * (3 + mean), (mean, rank, devices, differences)


def test_synchronized_normalisation_is_frozen_with_trainable_and_rebuilt_from_its_config():
    layer = SynchronizedBatchNormalization.from_config(SynchronizedBatchNormalization(0.8, 0.01).get_config())
    assert (layer.momentum, layer.epsilon) == (0.8, 0.01)
    layer.trainable = False
    inputs = tf.constant([[1.0], [3.0]])
    np.testing.assert_allclose(layer(inputs, training=True), inputs / np.sqrt(1.01), rtol=1e-6)
    np.testing.assert_array_equal(layer.moving_mean, [0.0])


def check_same_function(one, other, images):
    """Checks that outputs, and the gradients of images and of all weights, agree for equal weights."""
    results = []
    for model in (one, other):
        with tf.GradientTape() as tape:
            tape.watch(images)
            outputs = model(images)
            loss = tf.reduce_sum(outputs**2)
        results.append((outputs, *tape.gradient(loss, [images, *model.trainable_variables])))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    return results


def test_pooling_before_bias_and_relu_is_the_same_function():
    layers = tf.keras.layers
    images = tf.constant(np.random.default_rng(5).normal(size=(6, 9, 11, 3)).astype(np.float32))
    ours = PooledConv2D(4, 3)
    usual = tf.keras.Sequential([layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D()])
    ours(images)
    usual(images)
    ours.set_weights([ours.get_weights()[0], np.array([-0.5, 0.0, 0.1, 0.7], np.float32)])
    usual.set_weights(ours.get_weights())
    results = check_same_function(ours, usual, images)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert type(ours).from_config(ours.get_config()).filters == 4


# Conv 3x3 and pooling give 15 of 32 rows; the next conv 3x3 and pooling use 14 of them: 28 of the first conv's 30 rows.
@pytest.mark.parametrize(("side", "computed"), [(32, [28, 12]), (33, [28, 12]), (34, [32, 14]), (10, [8, 2])])
def test_rows_that_the_next_layers_pooling_drops_are_not_computed(side, computed):
    def network(**first):
        return tf.keras.Sequential([PooledConv2D(4, 3, **first), PooledConv2D(5, 3)])

    images = tf.constant(RANDOM.normal(size=[3, side, side, 2]).astype(np.float32))
    trimmed, whole = network(read_by=[3]), network()
    whole(images)
    trimmed(images)
    trimmed.set_weights(whole.get_weights())
    check_same_function(trimmed, whole, images)
    graph = tf.function(trimmed).get_concrete_function(tf.TensorSpec([None, side, side, 2])).graph
    rows = [op.outputs[0].shape[1] for op in graph.get_operations() if op.type == "Conv2D"]
    assert rows == computed


def test_the_bias_is_added_in_the_precision_of_variables():
    layer = PooledConv2D(1, 2, dtype="mixed_bfloat16")
    ones = tf.ones([1, 3, 3, 1])
    layer(ones)
    # Rounded to bfloat16 the bias would be -255, and the sum 1.
    layer.set_weights([np.full([2, 2, 1, 1], 64.0, np.float32), np.array([-255 - 1 / 256], np.float32)])
    outputs = layer(ones)
    assert outputs.dtype == tf.bfloat16
    assert float(tf.squeeze(outputs)) == 1 - 1 / 256


def drop(images=IMAGES, rate=0.25, units=400, step=3, seed=5, layers=1):
    """Returns ones after dropout in a training step: float [layers, images, units]."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        global_step = tf.compat.v1.train.get_or_create_global_step()
        with dropout_keys(tf.constant(images), seed):
            left = [StatelessDropout(rate)(tf.ones([len(images), units]), training=True) for _ in range(layers)]
        session.run(global_step.assign(step))
        return np.stack(session.run(left))


def test_dropout_drops_its_rate_in_every_example_and_unit_and_keeps_the_sum():
    left = drop(rate=0.25)[0]
    np.testing.assert_allclose(np.unique(left), [0.0, 1 / 0.75], rtol=1e-6)
    dropped = left == 0
    # Six standard deviations of 25,600, of 400 and of 64 draws.
    assert dropped.mean() == pytest.approx(0.25, abs=0.017)
    np.testing.assert_allclose(dropped.mean(axis=1), 0.25, atol=0.13)
    np.testing.assert_allclose(dropped.mean(axis=0), 0.25, atol=0.33)


def test_dropout_is_drawn_anew_for_each_example_step_seed_and_layer():
    first, second = drop(layers=2) == 0
    pairs = [(first, second), (first, drop(step=4)[0] == 0), (first, drop(seed=6)[0] == 0), (first[1:], first[:-1])]
    for one, other in pairs:
        # Of two independent masks.
        assert (one & other).mean() == pytest.approx(0.25**2, abs=0.01)


def test_an_examples_mask_is_the_same_in_any_batch_and_in_any_preprocessing():
    whole = drop()[0]
    np.testing.assert_array_equal(drop(IMAGES[::-2])[0], whole[::-2])
    np.testing.assert_array_equal(drop(IMAGES)[0], whole)
    # Standardised, and rounded differently.
    factor, mean = np.float32([1 / 61, 1 / 63, 1 / 66]), np.float32([2.1, 1.9, 1.7])
    np.testing.assert_array_equal(drop(IMAGES * factor - mean)[0], whole)
    np.testing.assert_array_equal(drop((IMAGES * factor - mean) * np.float32(1 + 3e-7))[0], whole)


def test_the_error_of_dropout_without_examples_has_a_remedy():
    with tf.Graph().as_default(), pytest.raises(UserCodeError, match="with dropout_keys"):
        tf.keras.Sequential([StatelessDropout(0.5)])(tf.ones([4, 6]), training=True)


def test_dropout_passes_a_mask_on():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Embedding(9, 4, mask_zero=True), StatelessDropout(0.5), layers.GlobalAveragePooling1D()]
    )
    found = model(tf.constant([[3, 5, 0]]))
    rows = model.layers[0].get_weights()[0]
    np.testing.assert_allclose(found, [(rows[3] + rows[5]) / 2], rtol=1e-6)


@pytest.mark.parametrize("columns", [1, 3])
def test_dropout_differs_by_the_rows_of_a_table(columns):
    random = np.random.default_rng(1)
    features = {f"x{number}": tf.constant(random.normal(size=32), tf.float32) for number in range(columns)}
    features["word"] = tf.zeros([32, 1], tf.int64)
    with dropout_keys(identifying_feature(features), 1, tf.constant(0)):
        left = StatelessDropout(0.5)(tf.ones([32, 64]), training=True).numpy()
    assert len(np.unique(left, axis=0)) == 32
    assert abs((left > 0).mean() - 0.5) <= 0.05


@pytest.mark.parametrize("number", [{}, {"age": tf.ones(32)}])
def test_dropout_differs_by_the_words_of_a_table(number):
    features = {"town": tf.strings.as_string(tf.range(32)), **number}
    with dropout_keys(identifying_feature(features), 1, tf.constant(0)):
        left = StatelessDropout(0.5)(tf.ones([32, 64]), training=True).numpy()
    assert len(np.unique(left, axis=0)) == 32
