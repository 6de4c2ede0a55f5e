"""The built-in models of tables are TensorFlow's canned Estimators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.model_fn import tables
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.head import Head
from tfx_estimator.model_fn.table_networks import TableNetwork
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION
from tfx_estimator.pipeline.config.trainer import TrainerSection

bring_back_estimator()

_STEPS, _ROWS, _BATCH = 5, 48, 16
# Of the deep part alone, which is clipped.
_OPTIMIZER = Optimizer(name="adagrad", learning_rate=0.1, global_clip_norm=0.5)


def _input(task: str, as_one: bool = False) -> tf.data.Dataset:
    """Returns batches of examples; `as_one`: with the numbers as one feature."""
    random = np.random.default_rng(3)
    features = {
        "size": random.normal(size=_ROWS).astype(np.float32),
        "age": random.normal(size=(_ROWS, 1)).astype(np.float32),
        "word": random.integers(-1, 6, _ROWS),
        # -1 is unknown here, where it is missing of a dense feature.
        "tags": tf.sparse.reorder(
            tf.SparseTensor(
                [[row, place] for row in range(_ROWS) for place in range(row % 4)],
                random.integers(-1, 6, sum(row % 4 for row in range(_ROWS))),
                [_ROWS, 3],
            )
        ),
        "importance": random.uniform(0.5, 2, _ROWS).astype(np.float32),
    }
    labels = {
        BINARY: np.abs(features["word"]) % 2,
        CLASSES: np.abs(features["word"]) % 3,
        REGRESSION: features["size"] * 2 + features["word"].astype(np.float32),
    }[task]
    if as_one:
        features["numbers"] = np.stack([features.pop("age")[:, 0], features.pop("size")], 1)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(_BATCH)


def _params(task: str, **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "num_classes": {BINARY: 2, CLASSES: 3, REGRESSION: 0}[task],
        "vocabularies": {"word": 5, "tags": 6},
        "weight": "importance",
        "optimizer": _OPTIMIZER.resolved(),
        "train_steps": _STEPS,
        **more,
    }


def _canned(kind: str, task: str, config: Any) -> Any:
    column = tf.feature_column
    number = column.numeric_column("numbers", 2)
    word = column.categorical_column_with_identity("word", 5, default_value=4)
    tags = column.categorical_column_with_identity("tags", 6, default_value=5)
    deep = [number, column.embedding_column(tags, 4), column.embedding_column(word, 4)]
    many = {} if task == REGRESSION else {"n_classes": 3 if task == CLASSES else 2}
    shared = {"weight_column": "importance", "config": config, **many}
    name = "Regressor" if task == REGRESSION else "Classifier"

    def optimizer() -> Any:
        return DeclaredOptimizer(_OPTIMIZER, _STEPS)

    if kind == "dnn":
        make = getattr(tf.estimator, f"DNN{name}")
        return make(feature_columns=deep, hidden_units=[8], optimizer=optimizer, **shared)
    if kind == "linear":
        return getattr(tf.estimator, f"Linear{name}")(
            feature_columns=[number, tags, word], optimizer=optimizer, **shared
        )
    make = getattr(tf.estimator, f"DNNLinearCombined{name}")
    columns = {"linear_feature_columns": [tags, word], "dnn_feature_columns": deep}
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


class _Losses(tf.estimator.SessionRunHook):
    """Notes the loss of each step."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def begin(self) -> None:
        (self._loss,) = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1:]

    def before_run(self, context: Any) -> Any:
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, context: Any, values: Any) -> None:
        self.found.append(float(values.results))


def _places(network: tf.keras.Model) -> dict[str, tf.Variable]:
    """Returns a Keras network's variables by the names in the canned Estimators' checkpoints."""
    found = {}
    for each in network.trainable_variables:
        layer, own = each.name.split(":")[0].split("/")
        part = "linear/linear_model" if layer.startswith("wide_") else "dnn"
        if layer == "wide_bias":
            name = f"{part}/bias_weights"
        elif layer == "wide_numbers":
            name = f"{part}/numbers/weights"
        elif layer.startswith("wide_"):
            name = f"{part}/{layer.removeprefix('wide_of_')}/weights"
        elif layer.startswith("deep_"):
            column = f"{layer.removeprefix('deep_')}_embedding/embedding_weights"
            name = f"{part}/input_from_feature_columns/input_layer/{column}"
        else:
            name = f"{part}/{layer}/{own}"
        found[name] = each
    return found


@pytest.mark.equivalence
@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("wide_deep", BINARY),
        ("linear", REGRESSION),
        pytest.param("dnn", CLASSES, marks=pytest.mark.long),
        pytest.param("wide_deep", REGRESSION, marks=pytest.mark.long),
    ],
)
def test_the_keras_network_trains_as_the_canned_estimator(kind, task, tmp_path):
    steps, given = 200, {"hidden_units": [8, 4], "embedding_size": 4}
    params = _params(task, label_mean=1.5, label_deviation=2.5)
    params["num_classes"] = {BINARY: 2, CLASSES: 3, REGRESSION: 1}[task]
    config = tf.estimator.RunConfig(model_dir=str(tmp_path), tf_random_seed=7)
    canned = tf.estimator.Estimator(getattr(tables, kind), config=config, params={**params, **given})
    losses = _Losses()
    canned.train(lambda: _input(task), steps=steps, hooks=[losses])
    first = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0"))

    number, word = tf.io.FixedLenFeature([], tf.float32), tf.io.FixedLenFeature([], tf.int64)
    spec = {"size": number, "age": tf.io.FixedLenFeature([1], tf.float32), "word": word}
    spec["tags"] = tf.io.VarLenFeature(tf.int64)
    built_in = TableNetwork(kind, spec, params)
    section = TrainerSection(
        global_batch_size=_BATCH, train_steps=_STEPS, optimizer=_OPTIMIZER, params={} if kind == "linear" else given
    )
    made = {"function": built_in.network, "head": Head.of(params), "make_optimizer": built_in.optimizer}
    model = ModelMaker(section, params["num_classes"], spec, **made).make_compiled(1)
    places = _places(model.network)
    for name, variable in places.items():
        variable.assign(first.get_tensor(name).reshape(variable.shape))
    step = tf.function(model.train_step)
    found = [float(step(batch)["loss"]) for batch in _input(task).take(steps)]
    assert np.mean(found[-9:]) < 0.98 * np.mean(found[:9])
    np.testing.assert_allclose(found, losses.found, rtol=1e-5, atol=1e-6)
    assert len(places) == len([name for name in first.get_variable_to_shape_map() if re.match(r"(dnn|linear)/", name)])
    for name, variable in places.items():
        np.testing.assert_allclose(
            variable.numpy(), canned.get_variable_value(name).reshape(variable.shape), atol=1e-5, err_msg=name
        )


def test_any_columns_and_half_precision_make_a_network():
    number, word = tf.io.FixedLenFeature([], tf.float32), tf.io.FixedLenFeature([], tf.int64)
    words = ("年龄", "性别", "a b", "a-b", "bias", "numbers", "logits", "hiddenlayer_0")
    spec = {**dict.fromkeys(words, word), "wide_bias": number, "收入": number}
    built_in = TableNetwork("wide_deep", spec, {"vocabularies": dict.fromkeys(words, 3)})
    features = {name: tf.ones([4], each.dtype) for name, each in spec.items()}
    weights = built_in.network(2).get_weights()
    # One of each word and of the logits' bias are linear.
    assert len(weights) == len(words) + 1 + len(words) + 6
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    network = built_in.network(2)
    assert [network(features).dtype, network(features).shape] == [tf.float32, [4, 2]]
    assert network.get_layer("hiddenlayer_0").compute_dtype == "bfloat16"
