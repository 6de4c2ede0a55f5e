"""The loss of a step, against Keras's, and its gradients; tests/equivalence covers replicas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.step.head import classification_loss
from tfx_estimator.model_fn.step.objective import Objective, _is_kernel, gradients_of
from tfx_estimator.model_fn.step.parts import Part

LOGITS = np.random.default_rng(0).normal(size=(7, 4)) * 3
LABELS = np.arange(7, dtype=np.int64) % 4


def loss(logits=LOGITS, **options):
    return classification_loss(tf.constant(LABELS), tf.constant(logits), **options)


def softmax_loss(targets: np.ndarray) -> np.ndarray:
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    return -(targets * np.log(p)).sum(1)


def test_float64_stays_float64_and_half_precision_becomes_float32():
    assert loss().dtype == "float64"
    np.testing.assert_allclose(loss(), softmax_loss(np.eye(4)[LABELS]), rtol=1e-14)
    assert loss(LOGITS.astype(np.float32)).dtype == loss(LOGITS.astype(np.float16)).dtype == "float32"


def test_smoothing_is_keras_own():
    keras = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2, reduction="none")
    np.testing.assert_allclose(loss(label_smoothing=0.2), keras(np.eye(4)[LABELS], LOGITS), rtol=1e-6)
    np.testing.assert_allclose(loss(label_smoothing=0.2), softmax_loss(0.8 * np.eye(4)[LABELS] + 0.05), rtol=1e-14)


def test_weights_are_by_label_and_work_with_smoothing():
    weights = (1.0, 0.0, 2.5, 0.5)
    np.testing.assert_allclose(loss(class_weights=weights), loss() * np.take(weights, LABELS), rtol=1e-14)
    both = loss(class_weights=weights, label_smoothing=0.1)
    np.testing.assert_allclose(both, loss(label_smoothing=0.1) * np.take(weights, LABELS), rtol=1e-14)


@pytest.mark.parametrize(
    ("names", "decays"),
    [
        (("kernel_net/dense/kernel:0", "kernel_net/dense/bias:0", "kernel_net/norm/gamma:0"), [True, False, False]),
        (("kernel_net/dense/kernel/part_0:0", "kernel_net/dense/bias/part_3:0", "part_1/bias"), [True, False, False]),
        (("separable/depthwise_kernel:0", "lstm/recurrent_kernel:0", "embeddings:0"), [True, True, False]),
    ],
)
def test_kernels_are_found_by_their_names_in_any_network(names, decays):
    assert [_is_kernel(name) for name in names] == decays


def test_the_loss_of_a_part_is_its_share_of_the_global_one():
    objective = Objective({}, weight_decay=0.5, global_batch_size=7)
    kernel = tf.Variable([2.0, 1.0], name="kernel")
    found = []
    for rows in (slice(0, 3), slice(3, 7)):
        part = Part({}, tf.constant(LABELS[rows]), share=(rows.stop - rows.start) / 7, first=not rows.start)
        found.append(float(objective.loss(part, tf.constant(LOGITS[rows]), [tf.constant(0.7)], [kernel])))
    # The losses of weights once, and those of the call by the examples of each part.
    per_example = softmax_loss(np.eye(4)[LABELS])
    assert found[0] == pytest.approx(per_example[:3].sum() / 7 + 0.7 * 3 / 7 + 0.5 * 2.5)
    assert found[1] == pytest.approx(per_example[3:].sum() / 7 + 0.7 * 4 / 7)


def test_a_custom_gradient_may_return_a_tensor_that_was_made_outside_of_the_step():
    outside = tf.constant([3.0, 4.0])
    one, two = tf.Variable([1.0, 2.0]), tf.Variable([0.5, 0.25])

    @tf.custom_gradient
    def multiplied(values, factors):
        return values * factors, lambda gradient: (outside, gradient * values)

    def loss_of(first):
        return tf.reduce_sum(multiplied(first, two) ** 2.0)

    @tf.function
    def found(inner):
        # Alone, and inside a further derivative; then in the next part of a batch.
        gradients = gradients_of(loss_of(one * inner), [one, two])
        with tf.control_dependencies(gradients):
            return gradients, gradients_of(loss_of(one), [one, two])

    inner, direct = found(tf.constant(2.0))
    for gradients, factor in ((inner, 2.0), (direct, 1.0)):
        with tf.GradientTape() as tape:
            loss = loss_of(one * factor)
        for each, expected in zip(gradients, tape.gradient(loss, [one, two])):
            np.testing.assert_allclose(each, expected)
