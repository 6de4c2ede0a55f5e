"""The run_fn written for a trainer_fn resumes the Estimator's training, and serves the same signatures."""

from __future__ import annotations

import glob
import importlib
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.types.standard_component_specs import MODULE_PATH_KEY
from tfx.utils import io_utils

from tests.artifacts import example
from tests.components.trainer.conftest import properties_of, training  # noqa: F401
from tests.pipeline.convert.test_trainer_fn import training_of
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.convert import trainer_fn as canned
from tfx_estimator.pipeline.convert.trainer_fn import convert

pytestmark = pytest.mark.equivalence

USER = Path(__file__).parent / "user"
MODULE = """
import tensorflow as tf

LENGTHS = [float(number % 7) for number in range(40)]
WORDS = [["a", "b", "c", ""][number % 4] for number in range(40)]
LABELS = [number % 7 // 3 for number in range(40)]
SPEC = {"length": tf.io.FixedLenFeature([], tf.float32), "word": tf.io.FixedLenFeature([], tf.string, "")}


def input_fn(mode):
    features = {"length": LENGTHS, "word": WORDS}
    batches = tf.data.Dataset.from_tensor_slices((features, labels())).batch(8)
    return batches.repeat() if mode == "train" else batches


def columns():
    words = tf.feature_column.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
    return [tf.feature_column.numeric_column("length"), tf.feature_column.indicator_column(words)]


def raw():
    given = {name: tf.compat.v1.placeholder(kind.dtype, [None], name) for name, kind in SPEC.items()}
    return tf.estimator.export.ServingInputReceiver(given, given)


def trainer_fn(fn_args, schema):
    assert schema is None
    parsing = tf.estimator.export.build_parsing_serving_input_receiver_fn(SPEC)
    receiver = raw if RAW else parsing
    return {
        "estimator": estimator(fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            input_fn, steps=None, exporters=[tf.estimator.BestExporter("words", receiver)]
        ),
    }
"""
CASES = {
    "two": """
RAW = True


def labels():
    return [min(each, 1) for each in LABELS]


def estimator(folder):
    return tf.estimator.LinearClassifier(columns()[:1], folder)
""",
    "words": """
RAW = False
NAMES = ["low", "middle", "high"]


def labels():
    return [NAMES[each] for each in LABELS]


def estimator(folder):
    return tf.estimator.DNNClassifier([4], columns(), folder, n_classes=3, label_vocabulary=NAMES)
""",
    "labels": """
RAW = False


def labels():
    return [[int(each > 0), int(each > 1)] for each in LABELS]


def estimator(folder):
    return tf.estimator.DNNEstimator(tf.estimator.MultiLabelHead(2), [4], columns(), folder)
""",
    "number": """
RAW = False


def labels():
    return LENGTHS


def estimator(folder):
    return tf.compat.v1.estimator.LinearRegressor(columns()[:1], folder)
""",
}


class Trained:
    """A trainer_fn of a case, trained and converted."""

    def __init__(self, case: str, folder: Path) -> None:
        name = f"{case}_utils"
        (folder / f"{name}.py").write_text(MODULE + CASES[case])
        self.args = FnArgs(
            train_steps=6,
            serving_model_dir=str(folder / "model" / "Format-Serving"),
            model_run_dir=str(folder / "model_run"),
        )
        self.module = importlib.import_module(name)
        before = self.module.trainer_fn(FnArgs(serving_model_dir=str(folder / "before"), train_steps=6), None)
        self.estimator = before["estimator"]
        self.train(6)
        self.output = folder / "converted"
        training_of_it = training_of(folder, name, self.estimator.latest_checkpoint(), 6, 6)
        _, (self.written, _) = convert(training_of_it, str(self.output))
        self._exporter = before["eval_spec"].exporters[0]

    def train(self, steps: int) -> None:
        """Trains up to a step."""
        self.estimator.train(self.module.input_fn, max_steps=steps)

    def exported(self, folder: Path) -> str:
        """Returns the export of the Estimator's own exporter."""
        made = self._exporter._saved_model_exporter.export(self.estimator, str(folder), None, None, True)
        return made.decode() if isinstance(made, bytes) else made

    def given(self, signature: Any) -> dict[str, Any]:
        """Returns a client's inputs for a signature."""
        values = {"length": self.module.LENGTHS, "word": self.module.WORDS}
        names = set(signature.structured_input_signature[1])
        if names == set(values):
            return {name: tf.constant(each) for name, each in values.items()}
        (name,) = names
        examples = [example(length=each, word=word.encode()) for each, word in zip(*values.values())]
        return {name: tf.constant(examples)}


def _signatures(saved_model: str) -> dict[str, Any]:
    """Returns names and types of each signature's inputs and outputs, and its method."""
    proto = saved_model_pb2.SavedModel.FromString((Path(saved_model) / "saved_model.pb").read_bytes())
    found = dict(proto.meta_graphs[0].signature_def)
    found.pop("__saved_model_init_op", None)
    return {name: (each.method_name, _types(each.inputs), _types(each.outputs)) for name, each in found.items()}


def _types(infos: Any) -> dict[str, int]:
    return {name: info.dtype for name, info in infos.items()}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if case in ("labels", "number", "words") else ()) for case in CASES],
)
def test_it_serves_like_the_estimator_and_resumes(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    trained = Trained(case, tmp_path)
    assert trained.written == f"{case}_utils_keras"
    monkeypatch.syspath_prepend(str(trained.output))
    monkeypatch.delitem(sys.modules, "network", raising=False)
    written = importlib.import_module(trained.written)
    # Trains no further step.
    written.run_fn(trained.args)
    before, after = trained.exported(tmp_path / "export"), trained.args.serving_model_dir
    assert _signatures(before) == _signatures(after)
    _assert_answers_are_equal(trained, before, after)
    # Resumes from step 6, like the Estimator itself.
    shutil.rmtree(after)
    trained.args.train_steps = 11
    written.run_fn(trained.args)
    trained.train(11)
    _assert_answers_are_equal(trained, trained.exported(tmp_path / "on"), after)
    assert not np.allclose(_logits(trained, before), _logits(trained, after), atol=1e-3)


def _assert_answers_are_equal(trained: Trained, before: str, after: str) -> None:
    old, new = (tf.saved_model.load(each).signatures for each in (before, after))
    for name in set(_signatures(before)):
        given = trained.given(old[name])
        found = new[name](**given)
        for key, answer in old[name](**given).items():
            assert (found[key].dtype, found[key].shape) == (answer.dtype, answer.shape)
            if answer.dtype == tf.float32:
                np.testing.assert_allclose(found[key], answer, rtol=0, atol=1e-5, err_msg=f"{name}/{key}")
            else:
                np.testing.assert_array_equal(found[key], answer, err_msg=f"{name}/{key}")


def _logits(trained: Trained, saved_model: str) -> np.ndarray:
    predict = tf.saved_model.load(saved_model).signatures["predict"]
    answers = predict(**trained.given(predict))
    return answers["logits" if "logits" in answers else "predictions"].numpy()


@pytest.mark.long
def test_the_trainer_resumes_training_by_the_run_fn(
    training: Any,  # noqa: F811
    digits: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, output = USER / "canned_digits.py", tmp_path / "converted"
    for folder in (USER, output):
        monkeypatch.syspath_prepend(str(folder))
    examples, args = f"{digits['examples'][0].uri}/Split-", {"serving_model_dir": str(tmp_path / "estimator")}
    graph = digits["transform_graph"][0].uri
    args |= {"train_files": [f"{examples}train/*"], "eval_files": [f"{examples}eval/*"], "transform_output": graph}
    schema = io_utils.parse_pbtxt_file(f"{digits['schema'][0].uri}/schema.pbtxt", schema_pb2.Schema())

    def estimator(steps: int) -> tuple[Any, Any]:
        specs = importlib.import_module("canned_digits").trainer_fn(FnArgs(train_steps=steps, **args), schema)
        specs["estimator"].train(specs["train_spec"].input_fn, max_steps=steps)
        return specs["estimator"], specs["eval_spec"].exporters[0]

    estimator(30)
    # As TFX packs it.
    with zipfile.ZipFile(tmp_path / "packed.whl", "w") as wheel:
        wheel.write(module, module.name)
    properties = properties_of(Settings(), 30, {MODULE_PATH_KEY: f"canned_digits@{wheel.filename}"})
    checkpoint = str(tmp_path / "estimator" / "model.ckpt-30")
    canned.convert(canned.Training("digits", checkpoint, 30, properties, digits), str(output))
    assert (output / module.name).read_text() == module.read_text()
    model, _ = training.run(Settings(), 40, run_fn="canned_digits_keras.run_fn")
    # The Estimator trains ten more steps.
    trained, exporter = estimator(40)
    exported = exporter.export(trained, str(tmp_path / "export"), None, None, True)
    records = tf.constant(list(tf.data.TFRecordDataset(glob.glob(f"{examples}eval/*")).as_numpy_iterator()))
    old, new = (tf.saved_model.load(str(each)).signatures for each in (exported.decode(), model / "Format-Serving"))
    before, after = (each["predict"](examples=records) for each in (old, new))
    assert set(before) == set(after)
    np.testing.assert_allclose(after["logits"], before["logits"], rtol=0, atol=1e-5)
    scores = new["serving_default"](inputs=records)["scores"]
    np.testing.assert_allclose(scores, before["probabilities"], rtol=0, atol=1e-5)
