"""The proof of a training in which rounding grows: its first and its last step are compared all the same."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import tensorflow as tf

RATE = 3.99


def step(value: Any, rate: float) -> Any:
    """Applies a chaotic map twice: rounding grows about fourfold."""
    for _ in range(2):
        value = rate * value * (1.0 - value)
    return value


def train(folder: Path, step: Callable[[Any], Any]) -> list[Any]:
    """Returns the tensors of such a training."""
    from tfx_estimator.model_fn.bridge import steps
    from tfx_estimator.model_fn.bridge.draws import Draws
    from tfx_estimator.model_fn.bridge.tensors import Reader
    from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

    with tf.Graph().as_default() as graph:
        weight = tf.compat.v1.get_variable("weight", initializer=[0.3, 0.4, 0.6], dtype=tf.float32)
        update = tf.compat.v1.assign(weight, step(weight))
        scaffold = tf.compat.v1.train.Scaffold(saver=tf.compat.v1.train.Saver())
        spec = types.SimpleNamespace(
            mode=ModeKeys.TRAIN, loss=tf.reduce_sum(weight), train_op=update, scaffold=scaffold
        )
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            checkpoint = scaffold.saver.save(session, str(folder / "model.ckpt"))
    after = steps.train(graph, spec, checkpoint, lambda: iter([{}] * 100), Draws(), str(folder))  # type: ignore[arg-type]
    assert len(after.losses) == steps.STEPS
    tensor = types.SimpleNamespace(name="weight", kind="weight")
    placed = types.SimpleNamespace(tensor=tensor, place="weight", factor=1.0)
    return [after, [placed], Reader(checkpoint)]


@pytest.mark.unit
def test_a_wrong_rate_is_found_though_rounding_explains_any_difference_after_all_steps(tmp_path: Path) -> None:
    from tfx_estimator.model_fn.bridge import steps, trial

    after, placed, reader = train(tmp_path, lambda value: step(value, RATE))
    assert after.counts == [1, steps.STEPS - 1, steps.STEPS]
    at_first, at_length, at_last = (next(after.tensors(placed, reader, count))[-1] for count in after.counts)
    assert max(at_first, at_last) < 1e-4
    assert at_length > 0.1
    for rate in (RATE, 1.01 * RATE, 0.9 * RATE):
        weight = tf.Variable([0.3, 0.4, 0.6])

        def go_on(_: Any, weight: tf.Variable = weight, rate: float = rate) -> Any:
            loss = tf.reduce_sum(weight)
            weight.assign(step(weight, rate))
            return loss

        found = trial.compare_steps(after, placed, reader, go_on, range(100), {"weight": weight})
        assert set(found["wrong"]) == (set() if rate == RATE else {"weight"})
        assert found["rounding"] == []
        # Of the right one, what the first step shows.
        assert found["next_steps"]["weight"] <= 1e-4 or rate != RATE


@pytest.mark.unit
@pytest.mark.parametrize(
    ("at", "apart", "holds"), [(7, 1e-3, True), (7, 0.6, False), (0, 1e-3, False), (19, 1e-3, False), (None, 0.0, True)]
)
def test_a_single_step_apart_is_rounding_if_it_is_small_and_neither_the_first_nor_the_last(
    tmp_path: Path, at: Optional[int], apart: float, holds: bool
) -> None:
    from tfx_estimator.model_fn.bridge import trial

    after, placed, reader = train(tmp_path, lambda value: value + 0.25)
    weight = tf.Variable([0.3, 0.4, 0.6])

    def go_on(index: int) -> Any:
        loss = tf.reduce_sum(weight)
        weight.assign_add(tf.fill([3], 0.25 + (apart if index == at else 0.0)))
        return loss

    found = trial.compare_steps(after, placed, reader, go_on, range(100), {"weight": weight})
    assert (not found["wrong"]) == holds
    assert found["rounding"] == []
