"""What a trainer_fn returns is converted, called as the Trainer called it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from tests.components.trainer.conftest import tf_estimator  # noqa: F401
from tfx_estimator.pipeline.base.errors import UserCodeError

MODULE = """
import tensorflow as tf

FEATURES = {"length": [1.0, 2.0, 3.0, 4.0], "word": ["a", "b", "c", ""]}
OWN = %s


def batches():
    return tf.data.Dataset.from_tensor_slices((FEATURES, [0, 1, 1, 0])).batch(2)


def trainer_fn(fn_args, schema):
    assert schema is None
    column = tf.feature_column
    words = column.categorical_column_with_hash_bucket("word", 5)
    estimator = tf.estimator.LinearClassifier([column.numeric_column("length"), words], fn_args.serving_model_dir)
    if OWN:
        estimator = tf.estimator.Estimator(lambda features, labels, mode: None, fn_args.serving_model_dir)
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(lambda: batches().repeat(), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(batches, steps=1),
    }
"""


def make(folder: Path, name: str, own: bool, monkeypatch: pytest.MonkeyPatch):
    from tfx.types import standard_artifacts

    from tfx_estimator.pipeline.convert.canned.training import Training

    (folder / f"{name}.py").write_text(MODULE % own)
    monkeypatch.syspath_prepend(str(folder))
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(folder / "examples"), json.dumps(["train", "eval"])
    args = {"train_args": json.dumps({"num_steps": 9}), "eval_args": "{}", "custom_config": "null"}
    properties = {**args, "trainer_fn": f"{name}.trainer_fn"}
    return Training("words", str(folder / "model.ckpt-3"), 3, properties, {"examples": [examples]})


def test_a_canned_estimator_of_a_trainer_fn_is_converted(tmp_path, monkeypatch):
    from tfx_estimator.pipeline.convert.canned.training import convert

    training = make(tmp_path, "canned_words", False, monkeypatch)
    import canned_words

    class Args:
        serving_model_dir, train_steps = str(tmp_path), 3

    spec = canned_words.trainer_fn(Args, None)
    spec["estimator"].train(spec["train_spec"].input_fn, max_steps=3)
    before = sorted(path.name for path in tmp_path.iterdir())
    proof = convert(training, str(tmp_path / "converted")).proof
    # The first of the two batches, as the EvalSpec says.
    assert proof.examples == 2
    assert proof.holds
    assert proof.next_step["step"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "converted"])
    assert tf.io.gfile.exists(str(tmp_path / "converted" / "network.py"))


def test_another_estimator_is_refused(tmp_path, monkeypatch):
    from tfx_estimator.pipeline.convert.canned.training import convert

    with pytest.raises(UserCodeError, match="trainer_fn of words returns, which is no canned one"):
        convert(make(tmp_path, "own_words", True, monkeypatch), str(tmp_path / "converted"))
