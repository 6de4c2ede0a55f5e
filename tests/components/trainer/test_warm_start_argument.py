"""A Trainer for anybody's pipeline: its parameter `warm_start`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.test_late_contract import execute
from tests.components.trainer.test_settings import RUN, channels
from tests.equivalence.conftest import read_weights
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.pipeline.errors import DeclarationError, UserCodeError

CANNED = """
import tensorflow as tf

V1 = tf.compat.v1


def trainer_fn(fn_args, schema):
    def input_fn():
        features = {{"x": [[1.0, 2.0], [3.0, 4.0]]}}
        return tf.data.Dataset.from_tensors((features, [[0], [1]])).repeat()

    def receiver():
        examples = V1.placeholder(tf.string, [None])
        parsed = V1.parse_example(examples, {{"x": tf.io.FixedLenFeature([2], tf.float32)}})
        return tf.estimator.export.ServingInputReceiver(parsed, {{"examples": examples}})

    columns = [tf.feature_column.numeric_column("x", (2,))]
    folder = fn_args.serving_model_dir
    config = tf.estimator.RunConfig(model_dir=folder, save_checkpoints_steps=10, tf_random_seed={seed})
    optimizer = tf.keras.optimizers.legacy.SGD({rate})
    return {{
        "estimator": tf.estimator.DNNClassifier({hidden}, columns, optimizer=optimizer, config=config),
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(input_fn, steps=1, exporters=tf.estimator.FinalExporter("e", receiver)),
        "eval_input_receiver_fn": None,
    }}
"""

# The second stays where it begins.
VALUES = {"before": {"seed": 1, "rate": 0.1, "hidden": [4, 3]}, "begun": {"seed": 5, "rate": 0.0, "hidden": [4, 5]}}


def made(**given: Any) -> dict[str, Any]:
    return Trainer(**channels(), **{"trainer_fn": "no_such.trainer_fn", **given}).exec_properties


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """What stands for weights; nothing reads them."""
    return store(tmp_path / "weights", b"one")


def store(folder: Path, content: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "model.ckpt-1.index").write_bytes(b"index")
    (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(content)
    return str(folder / "model.ckpt-1")


@pytest.mark.unit
def test_the_weights_are_part_of_the_key_and_their_content_is(checkpoint, tmp_path, monkeypatch):
    def key(**given: Any) -> dict[str, Any]:
        return {name: value for name, value in made(**given).items() if name != OPERATION_KEY}

    given = {"warm_start": {"checkpoint": checkpoint, "exclude": ["head/*"]}}
    begun = Settings.of(made(**given)).warm_start
    assert (begun.prefix, begun.exclude) == (checkpoint, ("head/*",))
    assert Settings.of(made()).warm_start is None
    first = key(**given)
    assert first != key()
    assert first == key(**given)
    assert first != key(warm_start={"checkpoint": checkpoint})
    store(tmp_path / "weights", b"other")
    assert first != key(**given)
    # Relative to where the pipeline is made; it trains elsewhere.
    monkeypatch.chdir(tmp_path)
    assert Settings.of(made(warm_start={"checkpoint": "weights/model.ckpt-1"})).warm_start.prefix == checkpoint


@pytest.mark.unit
@pytest.mark.parametrize(
    ("warm_start", "given", "told"),
    [
        ({"checkpoint": "no/such"}, {}, "there is no such file or folder"),
        ({"checkpoint": "no/such"}, {}, "check the path: it is relative to the current folder"),
        ({"checkpont": "{}"}, {}, "did you mean `checkpoint`?"),
        ({}, {}, "none of the two is given"),
        ("{}", {}, "Trainer(warm_start=…) is '"),
        ({"checkpoint": object()}, {}, "Trainer(warm_start=…): checkpoint is an object, builtins.object"),
        ({"checkpoint": "{}"}, {"trainer_fn": None, "run_fn": "no_such.run_fn"}, "a run_fn makes its own model"),
        ({"checkpoint": "{}"}, {"settings": Settings(warm_start_section={"model": "x"})}, "them in one place"),
    ],
)
def test_what_is_wrong_is_refused_when_the_pipeline_is_built(checkpoint, warm_start, given, told):
    def filled(value: Any) -> Any:
        return value.format(checkpoint) if isinstance(value, str) else value

    section = (
        {key: filled(value) for key, value in warm_start.items()}
        if isinstance(warm_start, dict)
        else filled(warm_start)
    )
    with pytest.raises(DeclarationError, match=re.escape(told)) as found:
        made(**given, warm_start=section)
    assert "trainer." not in str(found.value)


@pytest.mark.unit
def test_a_run_fn_that_is_found_late_is_refused_too(checkpoint, tmp_path):
    (tmp_path / "mine.py").write_text(RUN)
    with pytest.raises(DeclarationError, match="a run_fn makes its own model"):
        execute(tmp_path, {}, warm_start={"checkpoint": checkpoint}, module_file=f"{tmp_path}/mine.py")


def test_a_canned_estimator_begins_with_the_weights_of_another(training, tmp_path, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    modules = {}
    for name, values in VALUES.items():
        modules[name] = tmp_path / name / "canned.py"
        modules[name].parent.mkdir()
        modules[name].write_text(CANNED.format(**values))
    _, run = training.run(Settings(), 3, module_file=str(modules["before"]))
    weights = tmp_path / "kept"
    weights.mkdir()
    for file in Path(run.uri, "Format-Serving").glob("model.ckpt-3.*"):
        (weights / file.name).write_bytes(file.read_bytes())
    prefix = str(weights / "model.ckpt-3")
    settings = Settings.of(made(warm_start={"checkpoint": prefix, "exclude": ["*/bias"]}))
    _, other = training.run(settings, 2, module_file=str(modules["begun"]))
    before, begun = read_weights(prefix), read_weights(f"{other.uri}/Format-Serving")
    np.testing.assert_array_equal(begun["dnn/hiddenlayer_0/kernel"], before["dnn/hiddenlayer_0/kernel"])
    assert not np.array_equal(begun["dnn/hiddenlayer_0/bias"], before["dnn/hiddenlayer_0/bias"])
    assert begun["global_step"] == 2
    # Another size begins anew, and the log says so.
    assert "training begins with 1 of 6 variables" in caplog.text
    assert "dnn/hiddenlayer_1/kernel, which is [4, 5] here and [4, 3] there" in caplog.text
    # Weights that are gone by then are told with their place, before anything is trained.
    for file in weights.iterdir():
        file.unlink()
    with pytest.raises(UserCodeError, match=re.escape(f"no weights are in {prefix}")):
        training.run(settings, 4, module_file=str(modules["begun"]))
