"""The proof of a training in which rounding grows: the first step of it is compared all the same."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

    draws = Draws()
    with tf.Graph().as_default() as graph, draws.fixed():
        weight = tf.compat.v1.get_variable("weight", initializer=[0.3, 0.4, 0.6], dtype=tf.float32)
        update = tf.compat.v1.assign(weight, step(weight))
        scaffold = tf.compat.v1.train.Scaffold(saver=tf.compat.v1.train.Saver())
        spec = types.SimpleNamespace(
            mode=ModeKeys.TRAIN, loss=tf.reduce_sum(weight), train_op=update, scaffold=scaffold
        )
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            checkpoint = scaffold.saver.save(session, str(folder / "model.ckpt"))
    after = steps.train(graph, spec, checkpoint, lambda: iter([{}] * 100), draws, str(folder))  # type: ignore[arg-type]
    assert len(after.losses) == steps.STEPS
    tensor = types.SimpleNamespace(name="weight", kind="weight")
    placed = types.SimpleNamespace(tensor=tensor, place="weight", factor=1.0)
    return [after, [placed], Reader(checkpoint)]


@pytest.mark.unit
def test_a_wrong_rate_is_found_though_rounding_explains_any_difference_after_all_steps(tmp_path: Path) -> None:
    from tfx_estimator.model_fn.bridge import steps, trial

    after, placed, reader = train(tmp_path, lambda value: step(value, RATE))
    moved = list(after.tensors(placed, reader))
    assert [count for count, *_ in moved] == [1, steps.STEPS]
    (*_, at_first), (*_, at_last) = moved
    assert at_first < 1e-5
    assert at_last > 0.1
    for rate in (RATE, 1.01 * RATE, 0.9 * RATE):
        weight = tf.Variable([0.3, 0.4, 0.6])

        def go_on(_: Any, weight: tf.Variable = weight, rate: float = rate) -> Any:
            loss = tf.reduce_sum(weight)
            weight.assign(step(weight, rate))
            return loss

        found = trial.compare_steps(after, placed, reader, go_on, lambda: range(100), {"weight": weight})
        assert set(found["wrong"]) == (set() if rate == RATE else {"weight"})
        assert found["rounding"] == []
        # Of the right one, what the first step shows.
        assert found["next_steps"]["weight"] <= 1e-4 or rate != RATE


@pytest.mark.parametrize(
    ("runs", "apart", "holds"), [(1, 1e-2, True), (3, 1e-2, True), (4, 1e-2, False), (4, 1e-5, True)]
)
def test_what_differs_each_time_is_no_rounding(tmp_path: Path, runs: int, apart: float, holds: bool) -> None:
    from tfx_estimator.model_fn.bridge import trial

    def moved(value: Any) -> Any:
        return value + 0.25 + 0.1 * tf.random.uniform([1, 3])[0]

    after, placed, reader = train(tmp_path, moved)
    weight, iterations, calls = tf.Variable([0.3, 0.4, 0.6]), tf.Variable(5), itertools.count()

    @tf.function
    def moves() -> None:
        weight.assign(moved(weight))

    def go_on(index: int) -> Any:
        loss = tf.reduce_sum(weight)
        # In these runs a step is apart, as by a ReLU that rounding turns.
        is_apart = index == 7 and next(calls) < runs
        if iterations.assign_add(1) <= 25:
            moves()
            weight.assign_add(tf.fill([3], is_apart * apart))
        return loss

    given = {"weight": weight, "iterations": iterations}
    found = trial.compare_steps(after, placed, reader, go_on, lambda: range(100), given)
    assert (set(found["wrong"]), found["rounding"]) == (set() if holds else {"weight"}, [])
    assert (iterations.numpy(), found["draws"]) == (25, {"estimator": 1, "keras": 1})
