"""A factor multiplies a learning rate once, however an optimizer derives the one that it uses."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("is_derived", [False, True])
def test_a_derived_rate_is_multiplied_once(tf: Any, is_derived: bool) -> None:
    from tfx_estimator.model_fn.bridge.kept.optimizers import recorded, scale

    v1 = tf.compat.v1

    class Warm(v1.train.GradientDescentOptimizer):
        def __init__(self, rate: float) -> None:
            super().__init__(rate)
            self._lr = tf.convert_to_tensor(rate)

        def _prepare(self) -> None:
            self._learning_rate_tensor = self._lr * 1.0 if is_derived else self._lr

    with tf.Graph().as_default() as graph, recorded(graph) as applied:
        weight = v1.get_variable("weight", initializer=0.0, use_resource=True)
        step = Warm(1.0).minimize(weight * 1.0, var_list=[weight])
        assert scale(graph, applied, "factor")
        (factor,) = v1.local_variables()
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            session.run(factor.assign(0.5))
            session.run(step)
            assert session.run(weight) == -0.5
