"""A canned Estimator of somebody's own pipeline, which begins with the weights of another one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.components.trainer.test_arguments import made
from tests.equivalence.conftest import read_weights
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import UserCodeError

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


@pytest.mark.long
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
    settings = made(warm_start={"checkpoint": prefix, "exclude": ["*/bias"]})
    _, other = training.run(settings, 2, module_file=str(modules["begun"]))
    before, begun = read_weights(prefix), read_weights(f"{other.uri}/Format-Serving")
    np.testing.assert_array_equal(begun["dnn/hiddenlayer_0/kernel"], before["dnn/hiddenlayer_0/kernel"])
    assert not np.array_equal(begun["dnn/hiddenlayer_0/bias"], before["dnn/hiddenlayer_0/bias"])
    assert begun["global_step"] == 2
    # Another size begins anew, and the log says so.
    assert "training begins with 1 of 6 variables" in caplog.text
    assert "dnn/hiddenlayer_1/kernel, which is [4, 5] here and [4, 3] there" in caplog.text
    # Weights that are gone by then are told with their place, before anything is trained; what goes on needs none.
    anew = made(warm_start={"checkpoint": prefix})
    for file in weights.iterdir():
        file.unlink()
    _, longer = training.run(settings, 4, module_file=str(modules["begun"]))
    assert read_weights(f"{longer.uri}/Format-Serving")["global_step"] == 4
    with pytest.raises(UserCodeError, match=re.escape(f"no weights are in {prefix}")):
        training.run(anew, 4, module_file=str(modules["begun"]))
