"""Conversion of Estimator runs to Keras by the command line, and further training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import yaml
from sklearn.metrics import roc_auc_score
from tfx.components.trainer.fn_args_utils import FnArgs

from tests.components.trainer.test_kept import kept
from tests.e2e.conftest import ForkedWorkdir
from tests.equivalence.conftest import read_weights
from tests.root import ROOT, run_python
from tests.stack import needs_keras_3
from tfx_estimator.components.trainer.declared_input import declared_input
from tfx_estimator.components.trainer.settings import SETTINGS_KEY
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.convert.source import find

__all__ = ["kept"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_run_continues_in_keras_from_its_last_step(digits_run, forks, tmp_path):
    workdir, converted = ForkedWorkdir(tmp_path / "runs", forks), tmp_path / "converted"
    shutil.copytree(digits_run.kept, workdir.path)
    printed = forks.run(["convert", str(workdir.path / "digits"), "--output", str(converted)])
    assert "compared      359 evaluation examples: 0 with another class" in printed
    proof = json.loads((converted / "proof.json").read_text())
    assert proof["holds"]
    assert set(proof["logits"]) == {"estimator", "exported model"}
    assert max(proof["next_steps"].values()) <= 1e-4
    step, declaration = json.loads((converted / "mapping.json").read_text())["step"], str(converted / "new.yaml")
    assert f"continue by   tfx-estimator run {declaration}" in printed
    assert yaml.safe_load((converted / "new.yaml").read_text())["trainer"]["train_steps"] == 2 * step == 1200
    workdir.run(declaration, "--set", "trainer.train_steps=640")
    training = workdir.summary("digits")["training"]
    assert (training["first_step"], training["last_step"]) == (step, 640)
    page = tmp_path / "report.html"
    forks.run(["report", str(workdir.path / "digits"), "--output", str(page)])
    assert 'id="conversion"' in page.read_text()
    assert "raise trainer.train_steps" in workdir.run(declaration, "--set", f"trainer.train_steps={step}", code=2)


def test_a_foreign_model_dir_is_converted_with_the_data_of_a_run(digits_run, tmp_path):
    home = str(digits_run.kept / "digits")
    shutil.copytree(digits_run.summary["model_run"], tmp_path / "model_dir")
    own, other = find(home), find(home, str(tmp_path / "model_dir"))
    assert other.checkpoint == str(tmp_path / "model_dir" / "model.ckpt-600")
    assert (other.step, other.inputs.keys()) == (own.step, own.inputs.keys())
    assert not other.model


def test_a_model_dir_without_a_run_is_converted_by_a_declaration(forks, tmp_path, monkeypatch):

    bring_back_estimator()
    example = ROOT / "examples" / "own-model-fn"
    monkeypatch.syspath_prepend(str(example))
    import cnn

    drawn = np.random.RandomState(1)
    images, labels = drawn.rand(64, 28, 28, 1).astype(np.float32), drawn.randint(0, 10, 64)
    params = {"learning_rate": 0.003, "dropout": 0.4, "num_classes": 10}
    estimator = tf.estimator.Estimator(cnn.model_fn, str(tmp_path / "model_dir"), params=params)
    estimator.train(lambda: tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).batch(16).repeat(), steps=7)
    converted, words = tmp_path / "converted", ["convert", str(tmp_path / "model_dir"), "--output"]
    words += [str(converted), "--network", "keras_cnn:network"]
    assert "is a checkpoint, which contains neither its network nor its data" in forks.run(words, code=2)
    forks.run([*words, "--declaration", str(example / "own-model-fn.yaml")])
    proof = json.loads((converted / "proof.json").read_text())
    assert (proof["holds"], proof["examples"], proof["classes"]) == (True, 359, 0)
    assert proof["draws"] == {"estimator": 1, "keras": 1}
    assert max(proof["logits"].values()) <= 1e-6
    assert json.loads((converted / "mapping.json").read_text())["step"] == 7
    stored = np.load(converted / "weights.npz")
    np.testing.assert_array_equal(stored["conv2d/kernel"], estimator.get_variable_value("conv2d/kernel"))
    np.testing.assert_array_equal(stored["dense/kernel/m"], estimator.get_variable_value("dense/kernel/Adam"))
    new = yaml.safe_load((converted / "new.yaml").read_text())
    assert new["trainer"]["model"] == "keras_cnn:network"
    assert (new["trainer"]["path"], new["trainer"]["train_steps"]) == ("keras", 300)
    assert (converted / "keras_cnn.py").exists()


def test_a_kept_training_goes_on_in_a_pipeline(kept, forks, tmp_path):
    workdir, declared = ForkedWorkdir(tmp_path / "runs", forks), kept / "kept.yaml"
    data = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}
    trainer = {"path": "keras", "model": "converted.network:Training", "train_steps": 150, "global_batch_size": 64}
    evaluator = {"min_accuracy": 0.9}
    declared.write_text(yaml.safe_dump({"name": "kept", "data": data, "trainer": trainer, "evaluator": evaluator}))
    workdir.run(str(declared))
    summary = workdir.summary("kept")
    assert (summary["training"]["first_step"], summary["training"]["last_step"]) == (50, 150)
    assert summary["accuracy"] > 0.9
    assert summary["blessed"] is True
    assert len(list((workdir.path / "kept" / "serving").iterdir())) == 1
    workdir.run(str(declared))
    assert set(workdir.states("kept").values()) <= {"cached", "resolved"}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [("sgd", 0.05), ("momentum", 0.02), ("adam", 0.001), ("rmsprop", 0.001), ("adagrad", 0.05), ("ftrl", 0.05)],
)
def test_real_mnist_ends_in_keras_like_in_the_estimator(forks, tmp_path, real_data_dir, optimizer, rate):
    workdir, converted = ForkedWorkdir(tmp_path / "runs", forks), tmp_path / "converted"
    chosen = f"{{name: {optimizer}, learning_rate: {rate}, schedule: constant}}"

    def run(*args: str) -> None:
        sets = ("--set", f"data.data_dir={real_data_dir}", "--set", f"trainer.optimizer={chosen}")
        workdir.run("mnist", *sets, "--set", "evaluator.min_accuracy=0.3", *args)

    run(*_steps(100))
    home, keras3 = str(workdir.path / "mnist"), tmp_path / "keras 3"
    forks.run(["convert", home, "--output", str(converted)])
    if stacks.has_keras_3():
        forks.run(["convert", home, "--to", "keras3", "--output", str(keras3)])
        _write_batches(home, 100, keras3 / "batches.npz")
    run(*_steps(200))
    stayed = workdir.summary("mnist")
    assert stayed["training"]["first_step"] == 100
    before = read_weights(stayed["model_run"])
    if stacks.has_keras_3():
        keras, exact = (_trained_in_keras_3(keras3, by) for by in ("loop", "float64"))
        apart_keras, rounding, rounding_keras = _apart(before, keras), _apart(before, exact), _apart(keras, exact)
        print(f"{optimizer} in Keras 3: {apart_keras:.1e} apart; from float64 {rounding:.1e} and {rounding_keras:.1e}")
        # Rounding decides which of two nearly equal values is the maximum, and some optimizers divide by the gradient:
        # then Keras 3 must end as close to exact arithmetic as the Estimator.
        assert apart_keras <= 1e-5 or rounding_keras <= 1.1 * rounding
    warm_start = f"{{checkpoint: {converted}/checkpoints, resume: true}}"
    run("--set", "trainer.path=keras", "--set", f"trainer.warm_start={warm_start}", *_steps(200))
    moved = workdir.summary("mnist")
    assert (moved["training"]["first_step"], moved["training"]["last_step"]) == (100, 200)
    after = read_weights(moved["model_run"])
    mapping = json.loads((converted / "mapping.json").read_text())["tensors"]
    weights = {each["tensor"]: each["place"] for each in mapping if each["kind"] == "weight"}
    apart = max(float(np.abs(before[name] - after[place]).max()) for name, place in weights.items())
    accuracy = f"accuracy {stayed['accuracy']} and {moved['accuracy']}"
    print(f"{optimizer}: {len(weights)} weights {apart:.1e} apart, {accuracy}")
    assert apart <= 1e-5
    assert moved["accuracy"] == pytest.approx(stayed["accuracy"], abs=1e-4)
    assert moved["blessed"]
    assert moved["metrics"]["sparse_categorical_accuracy_diff"] == pytest.approx(0, abs=1e-4)


MODEL_FNS = {
    "official_mnist": ("{filters: [32, 64], units: 1024, rate: 0.4}", "probabilities", 1),
    "from_tutorial": ("{}", "logits", 0),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MODEL_FNS)
def test_a_model_fn_like_tensorflows_continues(forks, tmp_path, name):
    params, compared, draws = MODEL_FNS[name]
    user = ROOT / "tests" / "pipeline" / "convert" / "user"
    for path in (user / f"{name}.py", ROOT / "examples" / "multi-worker-tutorial" / "tutorial.py"):
        shutil.copy(path, tmp_path)
    declared = "name: old\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
    declared += f"trainer: {{model: '{name}:model_fn', params: {params}, train_steps: 150, global_batch_size: 64}}\n"
    (tmp_path / "old.yaml").write_text(declared + "evaluator: {min_accuracy: 0.0}\n")
    workdir, converted = ForkedWorkdir(tmp_path / "runs", forks), tmp_path / "converted"
    workdir.run(str(tmp_path / "old.yaml"))
    words = ["convert", str(workdir.path / "old"), "--declaration", str(tmp_path / "old.yaml")]
    forks.run([*words, "--network", f"{name}:network", "--output", str(converted)])
    proof = json.loads((converted / "proof.json").read_text())
    assert (proof["compared"], proof["draws"]) == (compared, {"estimator": draws, "keras": draws})
    assert max(proof["logits"].values()) <= 1e-6
    assert not proof["wrong"]
    estimator, keras = _areas(workdir.path / "old" / "artifacts", converted / "model.keras")
    print(f"{name}: {proof['logits']}, {proof['next_steps']}, AUC {estimator:.6f} {keras - estimator:+.1e}")
    assert estimator > 0.6
    assert keras == pytest.approx(estimator, abs=1e-4)
    workdir.run(str(converted / "new.yaml"))
    training = workdir.summary("old")["training"]
    assert (training["first_step"], training["last_step"]) == (150, 300)


def _areas(artifacts: Path, model: Path) -> tuple[float, float]:
    """Returns the area under the curve of each class against the others, of the exported and the Keras model."""
    graph, served, examples = (
        next((artifacts / place).iterdir())
        for place in ("Transform/transform_graph", "Trainer/model", "TfdsExampleGen/examples")
    )
    files = sorted(map(str, (examples / "Split-eval").iterdir()))
    records = tf.constant(list(tf.data.TFRecordDataset(files).as_numpy_iterator()))
    transform = tft.TFTransformOutput(str(graph))
    features = transform.transform_features_layer()(tf.io.parse_example(records, transform.raw_feature_spec()))
    signature = tf.saved_model.load(str(served / "Format-Serving")).signatures["serving_default"]
    (given,) = signature.structured_input_signature[1]
    logits = tf.keras.models.load_model(str(model))(features["image"])
    answers = signature(**{given: records})["probabilities"], tf.nn.softmax(logits)
    labels = features["label"].numpy().ravel()
    old, new = (roc_auc_score(labels, each.numpy(), multi_class="ovr") for each in answers)
    return float(old), float(new)


def _write_batches(home: str, count: int, file: Path) -> None:
    """Writes the batches of the steps after a run's training."""
    source = find(home)
    fn_args = FnArgs(
        train_files=[f"{source.uri('examples')}/Split-train/*"],
        eval_files=source.eval_files,
        transform_output=source.uri("transform_graph"),
        custom_config={SETTINGS_KEY: source.settings},
    )
    reader = declared_input(fn_args, source.settings.section, lambda: source.step).reader
    batches = list(reader.input_fn("train").take(count).as_numpy_iterator())
    images, labels = (np.stack(each) for each in zip(*((features["image"], label) for features, label in batches)))
    np.savez(file, images=images, labels=labels)


def _trained_in_keras_3(converted: Path, by: str) -> dict[str, np.ndarray]:
    """Continues training the written source in Keras 3; returns the final weights by the Estimator's names."""
    request = json.dumps(["train", str(converted), str(converted / "batches.npz"), by])
    program = ROOT / "tests" / "pipeline" / "convert" / "keras3_process.py"
    environment = {**os.environ, stacks.KERAS: "0", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, program], input=f"{request}\n", env=environment, text=True, check=True)
    values = np.load(converted / f"{by}.npz")
    tensors = json.loads((converted / "mapping.json").read_text())["tensors"]
    return {each["tensor"]: values[each["place"]] for each in tensors if each["kind"] == "weight"}


def _apart(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    return max(float(np.abs(one[name] - value).max()) for name, value in other.items())


WIDE = """\
import tensorflow as tf

layers = tf.keras.layers


def network(num_classes):
    hidden = [layers.Dense(3050, activation="relu", name=f"hidden{index}") for index in range(10)]
    return tf.keras.Sequential([layers.Flatten(), *hidden, layers.Dense(num_classes, name="logits")])
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_checkpoint_of_a_gigabyte_needs_two_and_a_half_of_memory(tmp_path):
    (tmp_path / "wide.py").write_text(WIDE)
    declared = "name: wide\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}, shards: 2}\n"
    declared += "trainer: {model: 'wide:network', train_steps: 3, global_batch_size: 16, optimizer: {name: adam}}\n"
    (tmp_path / "wide.yaml").write_text(declared)
    words = ("run", "wide.yaml", "--no-report", "--no-dry-run", "--workdir", "runs")
    run_python("-m", "tfx_estimator", *words, cwd=tmp_path, timeout=800, code=0)
    (data,) = (tmp_path / "runs").glob("wide/artifacts/Trainer/model_run/*/model.ckpt-3.data-*")
    converts = [sys.executable, "-m", "tfx_estimator", "convert", "runs/wide", "--output", "converted"]
    with subprocess.Popen(converts, cwd=tmp_path) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    size = data.stat().st_size
    print(f"{size:,} bytes; {used.ru_maxrss * 1024 / size:.2f} times as many at most, {used.ru_utime:.0f} s")
    assert size > 1e9
    assert used.ru_maxrss * 1024 <= 2.5 * size


@needs_keras_3
def test_a_completed_run_is_converted_to_keras_3_in_a_fresh_process(digits_run, forks, tmp_path):
    converted, examples = tmp_path / "converted", digits_run.examples.with_name("Split-train")
    home = str(digits_run.kept / "digits")
    forks.run(["convert", home, "--to", "keras3", "--examples", str(examples), "--output", str(converted)])
    proof = json.loads((converted / "proof.json").read_text())
    assert proof["holds"]
    assert proof["examples"] == 1438
    assert set(proof["logits"]) == {"estimator", "exported model"}
    assert {"weight", "slot"} <= set(proof["next_steps"])
    compile((converted / "training.py").read_text(), "training.py", "exec")


# Trains the kept graph without this project.
KEPT = """\
import glob, json, sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
import network

def labelled(serialized):
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    return {"examples": serialized}, tf.io.parse_example(serialized, spec)["label"]

dataset = tf.data.TFRecordDataset(sorted(glob.glob(sys.argv[2] + "/*"))).batch(128).map(labelled)
model = network.network()
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
before = model.evaluate(dataset, verbose=0)
model.fit(dataset, epochs=4, verbose=0)
network.export(model, sys.argv[3])
served = tf.saved_model.load(sys.argv[3]).signatures["serving_default"]
examples = next(iter(dataset))[0]
apart = np.abs(served(**examples)["logits"] - model(examples)).max()
print(json.dumps([before, model.evaluate(dataset, verbose=0), float(apart), "tfx_estimator" in sys.modules]))
"""


def test_the_exported_graph_of_a_run_continues_training_in_plain_keras(digits_run, forks, tmp_path):
    kept, home = tmp_path / "kept", str(digits_run.kept / "digits")
    printed = forks.run(["convert", home, "--to", "graph", "--output", str(kept)])
    assert ": a step of Keras's Adam changes 6 of 6 trained weights" in printed
    proof = json.loads((kept / "proof.json").read_text())
    assert (proof["holds"], proof["examples"], proof["classes"]) == (True, 359, 0)
    assert max(*proof["logits"].values(), *proof["kept"].values()) <= 1e-6
    # Trains on the eval split: on the training examples the loss is already minimal.
    words, legacy = (KEPT, str(kept), str(digits_run.examples), str(tmp_path / "trained")), {stacks.KERAS: "1"}
    done = run_python("-c", *words, cwd=tmp_path, code=0, **(legacy if stacks.has_keras_3() else {}))
    before, after, apart, ours = json.loads(done.stdout.splitlines()[-1])
    assert before[1] > 0.97
    assert after[0] < 0.8 * before[0]
    assert apart <= 1e-6
    assert not ours


def test_options_of_another_conversion_are_refused_for_a_kept_graph(digits_run, tmp_path, cli):
    words = ["convert", str(digits_run.kept / "digits"), "--output", str(tmp_path / "kept")]
    refused = cli(*words, "--to", "graph", "--network", "a:b", code=2).err
    assert "--network: --to graph takes the graph as it was exported" in refused
    assert "--answer: it is for --to graph" in cli(*words, "--answer", "predict:logits", code=2).err


def _steps(count: int) -> tuple[str, str]:
    return "--set", f"trainer.train_steps={count}"
