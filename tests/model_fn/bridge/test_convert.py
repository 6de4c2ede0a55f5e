"""Code and checkpoints alone are converted, where no package of a pipeline is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.root import ROOT, run_python
from tfx_estimator.model_fn.bridge.canned import conversion
from tfx_estimator.model_fn.bridge.convert import convert, parts
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.errors import DeclarationError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = pytest.mark.usefixtures("without_patches")
OF_PIPELINES = (
    "tfx", "apache_beam", "ml_metadata", "tensorflow_model_analysis", "tensorflow_transform", "tensorflow_datasets",
    "tensorflow_data_validation", "tfx_bsl", "kfp", "sklearn", "matplotlib", "pyarrow", "PIL", "jinja2", "pandas",
)  # fmt: skip
# Run by Python in every process that finds it, also in that of Keras 3, which itself needs rich.
SITE = f"""
import os, sys

sys.modules.update(dict.fromkeys({(*OF_PIPELINES, "yaml")!r}))
if os.environ.get("TF_USE_LEGACY_KERAS") != "0":
    sys.modules["rich"] = None
"""
CODE = """
import numpy as np
import tensorflow as tf

POINTS = np.random.RandomState(0).rand(64, 4).astype("float32")
LABELS = (POINTS.sum(1) > 2).astype("int64")


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": POINTS}, LABELS)).batch(16).repeat()


def shared_fn(input_context):
    assert input_context.num_input_pipelines == 1
    return input_fn()


def eval_fn():
    return input_fn().take(4)


def estimator(units=4, folder="model_dir", **options):
    columns = [tf.feature_column.numeric_column("x", (4,))]
    device = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = tf.estimator.RunConfig(train_distribute=device, eval_distribute=device)
    return tf.estimator.DNNClassifier([units], columns, folder, optimizer="Adam", config=config, **options)


def made():
    return estimator(), shared_fn, eval_fn


def wider():
    return estimator(5), input_fn, eval_fn


def deeper():
    columns = [tf.feature_column.numeric_column("x", (4,))]
    return tf.estimator.DNNClassifier([4, 4], columns, "model_dir"), input_fn, eval_fn


def narrow():
    return estimator(), lambda: input_fn().map(lambda x, y: ({"x": x["x"][:, :3]}, y)), eval_fn


def alone():
    return estimator()


def trainer_fn(fn_args, schema):
    spec = {"x": tf.io.FixedLenFeature([4], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}

    def batches(files):
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(files)).batch(16).repeat()
        parsed = records.map(lambda each: tf.io.parse_example(each, spec))
        return parsed.map(lambda each: ({"x": each["x"]}, each["y"]))

    assert schema is fn_args.schema_path is None
    return {
        "estimator": estimator(folder=fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(lambda: batches(fn_args.train_files), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(lambda: batches(fn_args.eval_files), fn_args.eval_steps),
        "eval_input_receiver_fn": None,
    }


def write_records(path):
    with tf.io.TFRecordWriter(path) as writer:
        for point, label in zip(POINTS, LABELS):
            example = tf.train.Example()
            example.features.feature["x"].float_list.value.extend(point)
            example.features.feature["y"].int64_list.value.append(label)
            writer.write(example.SerializeToString())
"""
OF_TENSORFLOW_1 = """
import code_of_mine
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def made():
    estimator = code_of_mine.estimator(folder="old").train(code_of_mine.input_fn, steps=3)
    return estimator, code_of_mine.input_fn, code_of_mine.eval_fn
"""
PROGRAM = """
import json, os, sys
import tfx_estimator

tfx_estimator.bring_back_estimator()
import code_of_mine
from tfx_estimator.__main__ import main

code_of_mine.estimator().train(code_of_mine.input_fn, steps=5)
before = sorted(os.listdir("model_dir"))
proof = tfx_estimator.convert(*code_of_mine.made(), "converted")
for name in ("yaml", "rich"):
    del sys.modules[name]
words = ["--to", "keras2", "--output", "by_verb"]
codes = {
    " ".join(given): main(["convert", *given, *words])
    for given in (
        ["model_dir", "--estimator", "code_of_mine:wider"],
        ["model_dir", "--estimator", "code_of_mine:deeper"],
        ["model_dir", "--estimator", "code_of_mine:narrow"],
        ["model_dir", "--estimator", "code_of_mine:nothing"],
        ["model_dir", "--estimator", "code_of_1:made"],
        ["nowhere", "--estimator", "code_of_mine:made"],
        ["model_dir", "--estimator", "code_of_mine:made", "--network", "it:is"],
    )
}
left = sorted({*os.listdir()} - {"__pycache__"})
code_of_mine.write_records("examples-0")
module_file = ["--estimator", "./code_of_mine.py:trainer_fn", "--train-files", "examples-*"]
codes["made"] = main(["convert", "model_dir", *module_file, *words])
words = ["--tf1", "--to", "keras2", "--output", "of_1"]
codes["tf1"] = main(["convert", "old", "--estimator", "code_of_1:made", *words])
same = before == sorted(os.listdir("model_dir"))
found = [name for name in %r if sys.modules.get(name) is not None]
print(json.dumps([proof.to_dict(), proof.holds, codes, left, same, found]))
"""


def folder_of(path: Path) -> Path:
    (path / "code_of_mine.py").write_text(CODE)
    (path / "code_of_1.py").write_text(OF_TENSORFLOW_1)
    return path


@pytest.mark.equivalence
def test_code_is_converted_where_tensorflow_is_installed_alone(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    folder = folder_of(tmp_path)
    places = os.pathsep.join(map(str, (site, ROOT / "src", folder)))
    done = run_python("-c", PROGRAM % (OF_PIPELINES,), cwd=folder, PYTHONPATH=places, code=0)
    proof, holds, codes, left, untouched, imported = json.loads(done.stdout.splitlines()[-1])
    assert (holds, untouched, imported) == (True, True, [])
    assert proof["examples"] == 64
    assert proof["logits"]["estimator"] <= 1e-6
    assert max(proof["next_steps"].values()) <= 1e-4
    assert proof["tensors"] == {"weight": 4, "slot": 8, "step": 1, "hyperparameter": 4}
    made_by = "from 2.16 on, with its Keras 3" if stacks.has_keras_3() else "with Keras 2"
    assert made_by in (folder / "converted" / "network.py").read_text()
    assert list(codes.values()) == [4, 4, 4, 4, 4, 2, 2, 0, 0], done.stderr[-1500:]
    assert left == ["code_of_1.py", "code_of_mine.py", "converted", "model_dir", "site"]
    # 20 batches, as the EvalSpec says; its data have no end.
    assert json.loads((folder / "by_verb" / "proof.json").read_text())["examples"] == 320
    assert "TensorFlow 2 has no tensorflow.logging, and TensorFlow 1 had it" in done.stderr
    assert "add --tf1" in done.stderr
    assert "with Keras 2" in (folder / "by_verb" / "network.py").read_text()


@pytest.mark.long
@pytest.mark.equivalence
def test_the_training_of_the_chicago_taxi_example_leaves_by_one_command(tmp_path: Path) -> None:
    module = ROOT.parent / "shared" / "data" / "taxi" / "taxi_utils.py"
    (package,) = importlib.util.find_spec("tfx").submodule_search_locations
    data = Path(package, "components", "testdata")
    if not module.is_file() or not data.is_dir():
        pytest.skip("there is no taxi_utils.py, or no testdata in this TFX")
    examples = data / "transform" / "transformed_examples"
    files = ["--train-files", f"{examples}/Split-train/*", "--eval-files", f"{examples}/Split-eval/*"]
    more = ["--schema", f"{data}/schema_gen/schema.pbtxt", "--transform", f"{data}/transform/transform_graph"]
    source = ["convert", f"{data}/trainer/previous/Format-Serving", "--estimator", f"{module}:trainer_fn"]
    run_python("-m", "tfx_estimator", *source, *files, *more, "--output", f"{tmp_path}/converted", cwd=tmp_path, code=0)
    proof = json.loads((tmp_path / "converted" / "proof.json").read_text())
    assert (proof["holds"], proof["classes"], proof["tensors"]["weight"]) == (True, 0, 20)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Any:
    bring_back_estimator()
    with pytest.MonkeyPatch.context() as patch:
        folder = folder_of(tmp_path_factory.mktemp("code"))
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        module = importlib.import_module("code_of_mine")
        module.estimator().train(module.input_fn, steps=3)
        yield module


def cut(folder: Path) -> str:
    """Returns a copy of a model_dir whose data end early."""
    shutil.copytree("model_dir", folder / "cut")
    (data,) = (folder / "cut").glob("model.ckpt-3.data-*")
    data.write_bytes(data.read_bytes()[:-9])
    return str(folder / "cut")


@pytest.mark.parametrize(
    ("made", "checkpoint", "kind", "words"),
    [
        ("wider", None, UserCodeError, r"dnn/hiddenlayer_0/kernel of shape \[4, 4\] is \[4, 5\] there"),
        ("deeper", None, UserCodeError, "dnn/hiddenlayer_1/kernel is not in it"),
        ("alone", None, UserCodeError, "the function returns DNNClassifierV2"),
        ("made", cut, UserCodeError, "cannot be read"),
        ("made", lambda folder: str(folder), DeclarationError, "there is no checkpoint"),
    ],
)
def test_other_code_or_checkpoints_are_refused_and_nothing_is_written(
    code: Any, tmp_path: Path, made: str, checkpoint: Callable[[Path], str] | None, kind: type, words: str
) -> None:
    given = checkpoint(tmp_path) if checkpoint else ""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(kind, match=words):
        convert(*parts(getattr(code, made)()), str(tmp_path / "converted"), checkpoint=given)
    assert sorted(tmp_path.iterdir()) == before


def test_an_optimizer_that_has_trained_here_is_named(code: Any, tmp_path: Path) -> None:
    columns, optimizer = [tf.feature_column.numeric_column("x", (4,))], tf.keras.optimizers.legacy.Adam()
    estimator = tf.estimator.DNNClassifier([2], columns, str(tmp_path / "own"), optimizer=optimizer)
    estimator.train(code.input_fn, steps=1)
    with pytest.raises(UserCodeError, match="the optimizer Adam has trained in this process"):
        convert(estimator, code.input_fn, code.eval_fn, str(tmp_path / "converted"))


def test_a_wrong_weight_fails_the_proof(code: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = conversion.weights.values
    monkeypatch.setattr(
        conversion.weights, "values", lambda *given: ((name, np.asarray(each) + 1) for name, each in values(*given))
    )
    with pytest.raises(NotEqualError, match="logits of the estimator"):
        convert(*code.made(), str(tmp_path / "converted"), "keras2")
    assert not any(tmp_path.iterdir())
