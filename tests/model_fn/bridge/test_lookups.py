"""A training's step reads the rows of its batch of an embedding, and not its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.bridge import lookups
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

pytestmark = pytest.mark.unit
ROWS, STEPS = 5_000, 6
_COMBINERS = ("mean", "sum", "sqrtn")


class Traced(tf.compat.v1.train.SessionRunHook):
    """Notes the shapes of all tensors that the last step makes."""

    def __init__(self) -> None:
        self.shapes: set[tuple[int, ...]] = set()

    def before_run(self, run_context: Any) -> Any:
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        return tf.compat.v1.train.SessionRunArgs([], options=options)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        nodes = [node for device in run_values.run_metadata.step_stats.dev_stats for node in device.node_stats]
        shapes = [slot.tensor_description.shape.dim for node in nodes for slot in node.output]
        self.shapes = {tuple(dim.size for dim in shape) for shape in shapes}


def trained(folder: Path, strategy: Any) -> tuple[set[tuple[int, ...]], dict[str, np.ndarray]]:
    """Trains TensorFlow's own wide and deep model; returns a step's shapes, and the weights."""
    column = tf.feature_column
    words = [column.categorical_column_with_identity(combiner, ROWS) for combiner in _COMBINERS]
    values = np.random.default_rng(1).integers(0, ROWS, [STEPS * 8, 3])

    def input_fn() -> tf.data.Dataset:
        features = {combiner: tf.constant(values) for combiner in _COMBINERS}
        return tf.data.Dataset.from_tensor_slices((features, tf.constant(values[:, 0] % 2))).batch(8)

    estimator = bring_back_estimator().DNNLinearCombinedClassifier(
        str(folder),
        words,
        dnn_feature_columns=[column.embedding_column(word, 4, combiner=word.key) for word in words],
        dnn_hidden_units=[4],
        config=tf.estimator.RunConfig(tf_random_seed=1, train_distribute=strategy),
    )
    hook = Traced()
    estimator.train(input_fn, hooks=[hook])
    return hook.shapes, {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def on_one_device() -> tf.distribute.Strategy:
    """Returns a strategy that places the variables and the ids on one device."""
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["/cpu:0"], cross_device_ops=reduction)


@pytest.mark.parametrize("strategy", [lambda: None, on_one_device], ids=["none", "mirrored"])
def test_a_step_reads_no_table_and_trains_the_same(monkeypatch: Any, tmp_path: Path, strategy: Any) -> None:
    bring_back_estimator()
    shapes, weights = trained(tmp_path / "mended", strategy())
    assert max(shape[0] for shape in shapes if shape) <= 64
    monkeypatch.setattr(lookups, "keep_gathers", lambda graph: None)
    shapes, expected = trained(tmp_path / "plain", strategy())
    # As TensorFlow would: the guard can go once it reads no table.
    assert {(ROWS, 4), (ROWS, 1)} <= shapes
    assert {*weights} == {*expected}
    for name, values in weights.items():
        np.testing.assert_array_equal(values, expected[name], name)


def test_lookups_in_conditions_are_left_alone() -> None:
    with tf.Graph().as_default() as graph:
        table = tf.compat.v1.get_variable("table", [ROWS, 2], use_resource=True)
        tf.compat.v1.disable_control_flow_v2()
        try:
            ids = tf.sparse.from_dense([[1, 2], [3, 3]])
            lookup = lambda: tf.nn.embedding_lookup_sparse(table, ids, None, "sum")  # noqa: E731
            rows = tf.cond(tf.compat.v1.placeholder_with_default(True, []), lookup, lambda: 2 * lookup())
        finally:
            tf.compat.v1.enable_control_flow_v2()
        lookups.keep_gathers(graph)
        with tf.compat.v1.Session() as session:
            session.run(table.initializer)
            found, values = session.run([rows, table])
    np.testing.assert_allclose(found, [values[1] + values[2], 2 * values[3]], rtol=1e-6)
