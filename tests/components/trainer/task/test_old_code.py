"""What a task says to write in place of what old code fails by."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.recorded_params import RecordedParams
from tfx_estimator.components.trainer.task.start import _write_error

IMAGE = 'write `features["image"]`: `features` is a dict of image'


def todo(tmp_path: Path, line: str) -> str:
    """What a task leaves for the supervisor of a model_fn with a line."""
    path = tmp_path / "old.py"
    path.write_text(f"import tensorflow as tf\n\n\ndef model_fn(features, params, own):\n    {line}\n")
    spec = importlib.util.spec_from_file_location("old", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    params = RecordedParams({"units": 3, "optimizer": {"name": "sgd"}})
    with tf.Graph().as_default():
        features = {"image": tf.compat.v1.placeholder(tf.float32, [None, 28, 28, 1])}
        with pytest.raises(Exception) as caught:  # noqa: PT011
            module.model_fn(features, params, {"a": 1})
    _write_error(str(tmp_path / "error.json"), caught.value)
    return json.loads((tmp_path / "error.json").read_text())["todo"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tf.reshape(features, [-1, 784])", IMAGE),
        ("tf.compat.v1.layers.dense(features, 10)", IMAGE),
        ("features.shape", IMAGE),
        ("x = features / 255.0", IMAGE),
        ("features['x']", IMAGE),
        ("tf.reshape(\n        features,\n        [-1, 784],\n    )", IMAGE),
        (
            "params['data_format']",
            "set `trainer.params: {data_format: …}` in the declaration, which `params` is made of",
        ),
        ("tf.placeholder(tf.float32)", "write `tf.compat.v1.placeholder` for `tf.placeholder`"),
        ("tf.losses.softmax_cross_entropy(1, 2)", "write `tf.compat.v1.losses.softmax_cross_entropy` for `tf.losses."),
        ("tf.train.AdamOptimizer(0.1)", "write `tf.compat.v1.train.AdamOptimizer` for `tf.train.AdamOptimizer`"),
    ],
)
def test_the_commonest_errors_of_old_code_are_told_with_what_to_write(tmp_path, line, expected):
    assert todo(tmp_path, line).startswith(expected)


@pytest.mark.parametrize(
    "line",
    [
        "tf.contrib.layers",
        "own['b']",
        "params['optimizer']['momentum']",
        "tf.reshape(features['image'], [-1, 7])[params['units'] / 0]",
        "raise ValueError(f'not of features {own}')",
        "features['image'].absent",
        # Both take the whole dict.
        "tf.compat.v1.feature_column.input_layer(features, [tf.feature_column.numeric_column('x')])",
        "tf.estimator.MultiClassHead(10).create_estimator_spec(features=features, mode='train', logits=own)",
        "tf.contrib.layers.flatten(features)",
    ],
)
def test_of_any_other_error_nothing_is_guessed(tmp_path, line):
    assert todo(tmp_path, line) == "mend the code above"
