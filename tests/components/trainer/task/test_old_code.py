"""What a task says to write in place of what old code fails by."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.task.start import _write_error


def todo(tmp_path: Path, line: str) -> str:
    """What a task leaves for the supervisor of a model_fn with a line."""
    path = tmp_path / "old.py"
    path.write_text(f"import tensorflow as tf\n\n\ndef model_fn(features, params, own):\n    {line}\n")
    spec = importlib.util.spec_from_file_location("old", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tf.Graph().as_default():
        features = {"image": tf.compat.v1.placeholder(tf.float32, [None, 28, 28, 1])}
        with pytest.raises(Exception) as caught:  # noqa: PT011
            module.model_fn(features, {}, {"a": 1})
    _write_error(str(tmp_path / "error.json"), caught.value)
    return json.loads((tmp_path / "error.json").read_text())["todo"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
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
        "tf.contrib.layers.flatten(features)",
    ],
)
def test_of_any_other_error_nothing_is_guessed(tmp_path, line):
    assert todo(tmp_path, line) == "mend the code above"
