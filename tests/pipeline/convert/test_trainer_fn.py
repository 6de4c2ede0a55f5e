"""Conversions of the canned Estimator that a trainer_fn returns, called as by the Trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from tests.artifacts import artifact
from tfx_estimator.pipeline.base.errors import PipelineError, UserCodeError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.convert.trainer_fn import Training, convert, find
from tfx_estimator.pipeline.folders import open_store

MODULE = """
import functools

import tensorflow as tf


class Own:
    def __call__(self, features, labels, mode):
        pass


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
        estimator = tf.estimator.Estimator(OWN, fn_args.serving_model_dir)
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(lambda: batches().repeat(), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(batches, steps=1),
    }
"""


def make(folder: Path, name: str, own: str, monkeypatch: pytest.MonkeyPatch):
    (folder / f"{name}.py").write_text(MODULE % own)
    monkeypatch.syspath_prepend(str(folder))
    return training_of(folder, name, str(folder / "model.ckpt-3"), 3, 9)


def training_of(folder: Path, module: str, checkpoint: str, step: int, steps: int) -> Training:
    """Returns a training by a module's trainer_fn, whose checkpoint is of a step of `steps`."""
    examples = artifact("Examples", folder / "examples")
    examples.split_names = json.dumps(["train", "eval"])
    args = {"train_args": json.dumps({"num_steps": steps}), "eval_args": "{}", "custom_config": "null"}
    properties = {**args, "trainer_fn": f"{module}.trainer_fn"}
    return Training("words", checkpoint, step, properties, {"examples": [examples]})


def test_a_canned_estimator_of_a_trainer_fn_is_converted(tmp_path, monkeypatch, request):

    training = make(tmp_path, "canned_words", "None", monkeypatch)
    import canned_words

    class Args:
        serving_model_dir, train_steps = str(tmp_path), 3

    spec = canned_words.trainer_fn(Args, None)
    spec["estimator"].train(spec["train_spec"].input_fn, max_steps=3)
    before = sorted(path.name for path in tmp_path.iterdir())
    proof, _ = convert(training, str(tmp_path / "converted"))
    # The first of the two batches, as the EvalSpec says.
    assert proof.examples == 2
    assert proof.holds
    assert proof.next_steps["step"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "converted"])
    # Without an exporter, the served signatures are unknown, so no run_fn is written.
    assert {path.name for path in (tmp_path / "converted").glob("*.py")} == {"network.py"}
    if stacks.has_keras_3():
        request.getfixturevalue("keras3")
        proof, _ = convert(training, str(tmp_path / "alone"), "keras3")
        assert (proof.examples, proof.holds) == (2, True)
        assert "class Ftrl(Steps)" in (tmp_path / "alone" / "network.py").read_text()


@pytest.mark.parametrize(
    "own", ["lambda features, labels, mode: None", "functools.partial(Own())", "Own()", "Own().__call__"]
)
def test_another_estimator_is_refused(tmp_path, monkeypatch, own):
    with pytest.raises(UserCodeError, match="trainer_fn of words returns, which is not a canned one"):
        convert(make(tmp_path, f"own_words_{abs(hash(own))}", own, monkeypatch), str(tmp_path / "converted"))


def test_an_unfinished_training_is_refused(tmp_path):
    (tmp_path / "metadata.sqlite").touch()
    store = open_store(str(tmp_path / "metadata.sqlite"))
    node = proto.Context(type_id=store.put_context_type(proto.ContextType(name="node")), name="words.Trainer")
    trainer = store.put_execution_type(proto.ExecutionType(name="Trainer"))
    store.put_execution(proto.Execution(type_id=trainer), [], [node])
    with pytest.raises(PipelineError, match="has no finished training"):
        find(str(tmp_path))
