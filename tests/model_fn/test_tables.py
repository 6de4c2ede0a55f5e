"""The built-in models of tables are TensorFlow's canned Estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn import tables
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION

bring_back_estimator()

_STEPS, _ROWS = 5, 48
_OPTIMIZER = Optimizer(name="adagrad", learning_rate=0.1)


def _input(task: str, as_one: bool = False) -> tf.data.Dataset:
    """Returns batches of examples; `as_one`: with the numbers as one feature."""
    random = np.random.default_rng(3)
    features = {
        "size": random.normal(size=_ROWS).astype(np.float32),
        "age": random.normal(size=(_ROWS, 1)).astype(np.float32),
        "word": random.integers(0, 5, _ROWS),
        "importance": random.uniform(0.5, 2, _ROWS).astype(np.float32),
    }
    labels = {
        BINARY: features["word"] % 2,
        CLASSES: features["word"] % 3,
        REGRESSION: features["size"] * 2 + features["word"].astype(np.float32),
    }[task]
    if as_one:
        features["numbers"] = np.stack([features.pop("age")[:, 0], features.pop("size")], 1)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(16)


def _params(task: str, **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "num_classes": {BINARY: 2, CLASSES: 3, REGRESSION: 0}[task],
        "vocabularies": {"word": 5},
        "weight": "importance",
        "optimizer": _OPTIMIZER.resolved(),
        "train_steps": _STEPS,
        **more,
    }


def _canned(kind: str, task: str, config: Any) -> Any:
    column = tf.feature_column
    number = column.numeric_column("numbers", 2)
    word = column.categorical_column_with_identity("word", 5, default_value=4)
    deep = [number, column.embedding_column(word, 4)]
    many = {} if task == REGRESSION else {"n_classes": 3 if task == CLASSES else 2}
    shared = {"weight_column": "importance", "config": config, **many}
    name = "Regressor" if task == REGRESSION else "Classifier"

    def optimizer() -> Any:
        return DeclaredOptimizer(_OPTIMIZER, _STEPS)

    if kind == "dnn":
        make = getattr(tf.estimator, f"DNN{name}")
        return make(feature_columns=deep, hidden_units=[8], optimizer=optimizer, **shared)
    if kind == "linear":
        return getattr(tf.estimator, f"Linear{name}")(feature_columns=[number, word], optimizer=optimizer, **shared)
    make = getattr(tf.estimator, f"DNNLinearCombined{name}")
    columns = {"linear_feature_columns": [word], "dnn_feature_columns": deep}
    return make(dnn_hidden_units=[8], dnn_optimizer=optimizer, **columns, **shared)


@pytest.mark.equivalence
@pytest.mark.parametrize(("kind", "task"), [("dnn", CLASSES), ("linear", REGRESSION), ("wide_deep", BINARY)])
def test_a_built_in_model_trains_as_the_canned_estimator(kind, task, tmp_path):
    def config(name: str) -> Any:
        return tf.estimator.RunConfig(model_dir=str(tmp_path / name), tf_random_seed=7)

    params = _params(task, hidden_units=[8], embedding_size=4)
    ours = tf.estimator.Estimator(getattr(tables, kind), config=config("ours"), params=params)
    canned = _canned(kind, task, config("canned"))
    inputs = {ours: lambda: _input(task), canned: lambda: _input(task, as_one=True)}
    for each, read in inputs.items():
        each.train(read, steps=_STEPS)
    assert set(ours.get_variable_names()) == set(canned.get_variable_names())
    for name in canned.get_variable_names():
        np.testing.assert_array_equal(ours.get_variable_value(name), canned.get_variable_value(name), err_msg=name)
    measured, expected = (each.evaluate(read, steps=3) for each, read in inputs.items())
    assert measured == expected
