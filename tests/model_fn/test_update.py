"""One step's update, in numbers; that it is the same under replicas is shown in tests/equivalence."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.unit


def test_the_loss_of_a_part_is_its_share_of_the_global_one():
    import tensorflow as tf

    from tfx_estimator.model_fn.update import global_loss

    per_example = np.float32([1.0, 2.0, 3.0, 6.0])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        parts = [global_loss(tf.constant(part), 4) for part in (per_example[:2], per_example[2:])]
        whole = global_loss(tf.constant(per_example), 4, [tf.constant(0.5), tf.constant(0.25)])
        found = session.run([*parts, whole])
    assert found == pytest.approx([0.75, 2.25, 3.75])


def test_a_step_does_what_comes_before_it_and_counts():
    import tensorflow as tf

    from tfx_estimator.model_fn.update import gradients_of, update

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.create_global_step()
        weight, average = (
            tf.compat.v1.get_variable("w", initializer=2.0),
            tf.compat.v1.get_variable("a", initializer=0.0),
        )
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        gradients = gradients_of(weight * weight, [weight])
        train = update(gradients, [weight], optimizer, step, before=[tf.compat.v1.assign(average, weight)])
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        found = session.run([weight, average, step])
    # Gradient 2w: 2.0 -> 1.6 -> 1.28; the average was taken before the second.
    assert found[0] == pytest.approx(1.28)
    assert found[1:] == [pytest.approx(1.6), 2]


def test_a_custom_gradient_may_return_a_tensor_that_was_made_outside_of_the_step():
    import tensorflow as tf

    from tfx_estimator.model_fn.update import gradients_of

    outside = tf.constant([3.0, 4.0])
    one, two = tf.Variable([1.0, 2.0]), tf.Variable([0.5, 0.25])

    @tf.custom_gradient
    def multiplied(values, factors):
        return values * factors, lambda gradient: (outside, gradient * values)

    def loss_of(first):
        return tf.reduce_sum(multiplied(first, two) ** 2.0)

    @tf.function
    def found(inner):
        # As it is, and as what is further differentiated; then in the next part of a batch.
        gradients = gradients_of(loss_of(one * inner), [one, two])
        with tf.control_dependencies(gradients):
            return gradients, gradients_of(loss_of(one), [one, two])

    inner, direct = found(tf.constant(2.0))
    for gradients, factor in ((inner, 2.0), (direct, 1.0)):
        with tf.GradientTape() as tape:
            loss = loss_of(one * factor)
        for each, expected in zip(gradients, tape.gradient(loss, [one, two])):
            np.testing.assert_allclose(each, expected)
