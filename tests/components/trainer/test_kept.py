"""An Estimator's kept training goes on as a model of the Keras paths."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn.datasets import load_digits

import tfx_estimator
from tests.components.trainer.conftest import Training, served_accuracy
from tests.equivalence.conftest import largest_difference, read_losses, read_weights
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.config.load import load

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

KEPT, LAST = 50, 70
# Of float32, after 20 steps.
CLOSE = 1e-5


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A small network, as code of TensorFlow 1 has it."""
    v1 = tf.compat.v1
    logits = v1.layers.dense(tf.nn.relu(v1.layers.dense(v1.layers.flatten(features["image"]), 32)), 10)
    outputs = {"probabilities": tf.nn.softmax(logits), "class": tf.argmax(logits, 1)}
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, outputs)
    loss, step = v1.losses.sparse_softmax_cross_entropy(labels, logits), v1.train.get_global_step()
    train_op = v1.train.AdamOptimizer(v1.train.exponential_decay(0.004, step, 20, 0.9)).minimize(loss, step)
    metrics = {
        "accuracy": v1.metrics.accuracy(labels, outputs["class"]),
        "of_a_class": v1.metrics.recall_at_thresholds(tf.equal(labels, 1), outputs["probabilities"][:, 1], [0.3, 0.6]),
    }
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def input_fn() -> Any:
    """The digits, standardised."""
    bunch = load_digits()
    images = np.pad(bunch.images.repeat(3, axis=1).repeat(3, axis=2) / 16, ((0, 0), (2, 2), (2, 2)))[..., np.newaxis]
    images = ((images - images.mean()) / images.std()).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(({"image": images}, bunch.target.astype(np.int32))).repeat(4).batch(64)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains an Estimator, and keeps its training in the folder `converted`."""
    folder = tmp_path_factory.mktemp("kept")
    estimator = tf.estimator.Estimator(model_fn, str(folder / "model"), tf.estimator.RunConfig(tf_random_seed=3))
    estimator.train(input_fn, steps=KEPT)
    eval_spec = tf.estimator.EvalSpec(input_fn, steps=2)
    assert tfx_estimator.convert(estimator, input_fn, eval_spec, str(folder / "converted")).step == KEPT
    return folder


@pytest.fixture
def go_on(train: Any, kept: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trains to the last step; returns the weights, the exported model's folder and the model_run."""
    monkeypatch.syspath_prepend(str(kept))

    def run(path: str = "keras", **section: Any) -> tuple[dict[str, np.ndarray], Path, Any]:
        section = {"model": "converted.network:Training", "global_batch_size": 64, "log_every_steps": 1, **section}
        served, run = train(path, LAST, save_checkpoints_steps=10, **section)
        return _kept_variables(run), served, run

    return run


def _kept_variables(run: Any) -> dict[str, np.ndarray]:
    names = ("global_step", "dense", "beta")
    return {name: each for name, each in read_weights(run.uri).items() if name.startswith(names)}


@pytest.fixture(scope="module")
def whole(kept: Path, digits: Any, settings: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The variables, export and run of a training that goes on without an interruption."""
    section = {"model": "converted.network:Training", "path": "keras", "train_steps": LAST, "global_batch_size": 64}
    training = Training(tmp_path_factory.mktemp("whole") / "Trainer", digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(kept))
        served, run = training.run(settings({**section, "log_every_steps": 1}, path="keras"), LAST)
    return _kept_variables(run), served, run


@pytest.mark.long
def test_training_goes_on_from_the_kept_step(whole: Any, kept: Path, digits: Any) -> None:
    variables, served, run = whole
    assert [step for step, _ in read_losses(run.uri)] == list(range(KEPT + 1, LAST + 1))
    assert variables["global_step"] == LAST
    assert served_accuracy(served, digits["examples"][0].uri) > 0.7
    # The kept model, with the checkpoint's values.
    sys.path.insert(0, str(kept))
    from converted import network

    model = network.Training()
    model.set_weights([variables[network.name_of(each)] for each in model.weights])
    exported = tf.saved_model.load(str(served / "Format-Serving")).signatures["images"]
    images = np.random.default_rng(1).integers(0, 255, (7, 28, 28, 1), np.uint8)
    found = exported(images=tf.constant(images))

    layer = tft.TFTransformOutput(digits["transform_graph"][0].uri).transform_features_layer()
    expected = model.call(layer({"image": tf.constant([each.tobytes() for each in images])}))
    assert sorted(found) == ["class", "probabilities"]
    for name, each in expected.items():
        np.testing.assert_array_equal(found[name], each)


def test_a_killed_training_ends_as_if_it_were_not(go_on: Any, whole: Any, tmp_path: Path) -> None:
    killing = {"model": "killing_kept:killed", "params": {"kill_at": 15, "marker": str(tmp_path / "marker")}}
    variables, _, run = go_on("keras_custom_loop", **killing, distribution={"max_restarts": 1})
    assert (tmp_path / "marker").exists()
    assert Path(run.uri, "logs", "chief-0.attempt-2.log").exists()
    assert largest_difference(variables, whole[0]) == 0.0


@pytest.mark.parametrize(
    "strategy",
    [
        {"strategy": "mirrored", "devices": {"cpu": 2}},
        pytest.param({"strategy": "multi_worker_mirrored", "workers": 2}, marks=pytest.mark.long),
    ],
    ids=["mirrored", "workers"],
)
def test_replicas_go_on_as_one(go_on: Any, whole: Any, strategy: dict[str, Any]) -> None:
    variables, _, run = go_on(distribution={"train": strategy})
    assert largest_difference(variables, whole[0]) <= CLOSE
    np.testing.assert_allclose(*(list(dict(read_losses(each.uri)).values()) for each in (run, whole[2])), rtol=CLOSE)


def test_what_a_kept_training_cannot_be_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / "network.py").write_text("class Training: ...")
    proof = {"uncut": "it applies in a condition", "step": KEPT, "left_out": ["the hook Logging"]}
    (tmp_path / "converted" / "proof.json").write_text(json.dumps(proof))
    declared = "name: kept\ndata: {dataset: mnist}\ntrainer: {model: converted.network:Training, "
    wrong = {
        "train_steps: 60}": "set trainer.path: keras",
        "path: keras, train_steps: 50}": "was kept at step 50",
        "path: keras, train_steps: 60, distribution: {train: mirrored:2}}": "trains on one device: it applies in a",
        "path: keras, train_steps: 60, distribution: {eval: mirrored:2}}": "evaluated on one device: it applies",
        "path: keras, train_steps: 60, distribution: {train: {strategy: parameter_server, workers: 2}}}": "processes",
    }
    for words, sentence in wrong.items():
        (tmp_path / "kept.yaml").write_text(declared + words)
        with pytest.raises(TfxEstimatorError, match="has 1 problem") as raised:
            load(str(tmp_path / "kept.yaml"))
        assert sentence in str(raised.value)
        assert raised.value.exit_code == 2
    without = {**proof, "uncut": "", "left_out": ["mode eval, in which the model_fn fails by a KeyError"]}
    (tmp_path / "converted" / "proof.json").write_text(json.dumps(without))
    (tmp_path / "kept.yaml").write_text(declared + "path: keras, train_steps: 60}")
    with pytest.raises(TfxEstimatorError, match="was kept without mode eval, in which the model_fn fails"):
        load(str(tmp_path / "kept.yaml"))
