"""A run_fn finds the declared strategy, and its SavedModels are found as TFX finds them, however they are written."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tfx.utils import path_utils

from tests.artifacts import artifact, outputs
from tfx_estimator.components.trainer import run_fn as module
from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import ExportError
from tfx_estimator.pipeline.base.stack import stacks

SERVING, EVAL = "Format-Serving", "Format-TFMA"
ALONE = TaskSpec("chief", 0, 1)


def _save(folder: Path, name: str) -> None:
    """A SavedModel without variables, identified by the name of its output."""
    proto = saved_model_pb2.SavedModel()
    proto.meta_graphs.add().signature_def["serving_default"].outputs[name].name = "x:0"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())


def _saved(folder: Path) -> str:
    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (name,) = proto.meta_graphs[0].signature_def["serving_default"].outputs
    return name


@pytest.fixture
def run(tmp_path: Path):
    """Runs the path of a function that writes SavedModels; returns the published folder."""
    from tfx.types import artifact_utils

    examples = artifact("Examples", tmp_path / "examples")
    examples.split_names = '["train", "eval"]'

    def call(saved: list[str], task: TaskSpec = ALONE) -> Path:
        file = tmp_path / "user_module.py"
        file.write_text(
            textwrap.dedent(f"""
            import os
            from tests.components.trainer.test_run_fn import _save, Path
            def run_fn(fn_args):
                folders = {{"{SERVING}": fn_args.serving_model_dir, "{EVAL}": fn_args.eval_model_dir}}
                for place in {saved!r}:
                    first, _, rest = place.partition("/")
                    _save(Path(folders[first], rest), place.replace("/", "."))
            """)
        )
        job = Job(
            artifact_utils.jsonify_artifact_dict({"examples": [examples]}),
            artifact_utils.jsonify_artifact_dict(outputs(tmp_path)),
            {"module_file": str(file), "train_args": "{}", "eval_args": "{}", "custom_config": "{}"},
            str(tmp_path / "training"),
            path="run_fn",
        )
        module.run(TaskContext(job, task, ProgressWriter(str(tmp_path / "progress"))))
        return Path(job.exports_dir)

    return call


@pytest.mark.parametrize(
    ("saved", "serving", "evaluated"),
    [
        ([SERVING], SERVING, None),
        ([SERVING, EVAL], SERVING, EVAL),
        ([f"{SERVING}/export/taxi/17", f"{EVAL}/18"], f"{SERVING}.export.taxi.17", f"{EVAL}.18"),
        # From earlier attempts; the last one's name has one more digit.
        (
            [f"{SERVING}/export/taxi/{time}" for time in (9, 10, 8)] + [f"{EVAL}/{time}" for time in (9, 10, 8)],
            f"{SERVING}.export.taxi.10",
            f"{EVAL}.10",
        ),
        # An export that a kill interrupted.
        ([f"{SERVING}/export/taxi/7", f"{SERVING}/export/taxi/temp-8"], f"{SERVING}.export.taxi.7", None),
        # Where TFX looks first.
        ([SERVING, f"{SERVING}/export/taxi/7"], f"{SERVING}.export.taxi.7", None),
        ([f"{SERVING}/export/best/6", f"{SERVING}/export/last/7"], f"{SERVING}.export.last.7", None),
    ],
)
def test_saved_models_are_adopted(run, saved, serving, evaluated):
    exports = run(saved)
    assert _saved(exports / SERVING) == serving
    assert Path(path_utils.serving_model_path(str(exports))) == exports / SERVING or "export" not in serving
    assert (_saved(exports / EVAL) if (exports / EVAL).exists() else None) == evaluated


@pytest.mark.parametrize("saved", [[], [EVAL], [f"{SERVING}/export/taxi/temp-8"], [f"{SERVING}/1"]])
def test_nothing_to_serve_is_refused(run, tmp_path, saved):
    with pytest.raises(ExportError, match="training ended without a model"):
        run(saved)
    assert not (tmp_path / "training" / "exported").exists()


def test_in_a_cluster_only_the_chief_publishes(run, tmp_path):
    exports = run([SERVING, EVAL], TaskSpec("worker", 1, 1, tf_config="{}"))
    assert not exports.exists()
    own = tmp_path / "training" / "tmp_worker_worker-1"
    assert _saved(own / SERVING) == SERVING
    assert _saved(own / EVAL) == EVAL
    assert [path.name for path in (tmp_path / "training").iterdir()] == [own.name]
    events = [event["event"].value for event in ProgressReader(str(tmp_path / "progress")).read()]
    assert events == ["running"]
    assert _saved(run([SERVING], TaskSpec("chief", 0, 1, tf_config="{}")) / SERVING) == SERVING


@pytest.fixture
def executor(monkeypatch):
    """TensorFlow's class, restored after the test."""
    from tensorflow_estimator.python.estimator.training import _TrainingExecutor

    monkeypatch.setattr(_TrainingExecutor, "run_local", _TrainingExecutor.run_local)
    return _TrainingExecutor


@pytest.mark.parametrize("resumes", [False, True])
def test_an_estimator_that_finds_its_checkpoints_always_exports(run, tmp_path, executor, resumes):
    before = executor.run_local
    if resumes:
        (tmp_path / "training" / SERVING).mkdir(parents=True)
        (tmp_path / "training" / SERVING / "checkpoint").write_text("")
    run([f"{SERVING}/export/taxi/7"])
    assert (executor.run_local is not before) == resumes


def test_finished_training_is_evaluated_and_exported(tmp_path, executor):
    def data():
        return tf.data.Dataset.from_tensors(({"x": [[1.0], [2.0]]}, [[1.0], [2.0]])).repeat()

    def receiver():
        placeholder = tf.compat.v1.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": placeholder}, {"x": placeholder})

    def train_and_evaluate() -> tuple:
        estimator = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], model_dir=str(tmp_path))
        exporters = [tf.estimator.FinalExporter("mine", receiver)]
        eval_spec = tf.estimator.EvalSpec(data, steps=1, exporters=exporters)
        return tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(data, max_steps=3), eval_spec)

    def versions() -> list[str]:
        return sorted(path.name for path in (tmp_path / "export" / "mine").glob("[0-9]*"))

    before, _ = train_and_evaluate()
    assert before["global_step"] == 3
    assert len(versions()) == 1
    shutil.rmtree(tmp_path / "export")

    # TensorFlow's own behaviour, which makes the patch necessary.
    assert train_and_evaluate() == (None, None)
    assert versions() == []

    module._EXPORT_AFTER_ALL.apply()
    after, exported = train_and_evaluate()
    assert after == before
    assert [Path(tf.compat.as_str(path)).name for path in exported] == versions()
    assert len(versions()) == 1
    # Training that is not skipped is evaluated and exported once.
    shutil.rmtree(tmp_path)
    assert train_and_evaluate()[0]["global_step"] == 3
    assert len(versions()) == 1


@pytest.mark.timeout(120)
def test_code_that_gets_creates_or_ignores_a_strategy_finds_the_declared_one(codes):
    (found,) = codes.answers("-m", "tests.components.trainer.asks_for_strategy")
    assert found["knows of none"] == [2, "MirroredStrategy"]
    assert found["difference"] < 1e-6
    assert found["declared"] == [
        "get_strategy",
        "MirroredStrategy",
        "its own reduction",
        "MultiWorkerMirroredStrategy",
        "experimental",
    ]
    assert found["replicas"] == 2
    assert found["own"] == [1, "MirroredStrategy"]
    assert not found["after"]
    (notice,) = found["notices"]
    assert notice.startswith("the run_fn makes its own strategy, MirroredStrategy")


# RESULTS stands for a file.
MODULE = """
import keras
import tensorflow as tf
import tensorflow_transform as tft


def run_fn(fn_args):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        transformed = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return tf.reshape(transformed["image"], [-1, 784]), transformed["label"]

    def read(files):
        return tf.data.TFRecordDataset(tf.io.gfile.glob(files)).batch(32).map(parse)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input([784]), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(read(fn_args.train_files), epochs=6, verbose=2)
    accuracy = model.evaluate(read(fn_args.eval_files), return_dict=True, verbose=0)["accuracy"]
    model.export(fn_args.serving_model_dir)
    with open(RESULTS, "w") as file:
        print(keras.__version__[0], tf.keras.layers.Layer.__module__.split(".")[0], accuracy, file=file)
"""


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_module_that_imports_keras_trains_and_exports(fresh_tasks, training, tmp_path):
    """Keras 3 on today's stack, next to the Keras 2 of `tf.keras`."""
    file, results = tmp_path / "keras_module.py", tmp_path / "results"
    file.write_text(MODULE.replace("RESULTS", repr(str(results))))
    model, _ = training.run(Settings(), module_file=str(file))
    of_module, of_tensorflow, accuracy = results.read_text().split()
    expected = ("2", "keras") if stacks.current() is stacks.LEGACY else ("3", "tf_keras")
    assert (of_module, of_tensorflow) == expected
    assert float(accuracy) > 0.9
    served = tf.saved_model.load(str(model / "Format-Serving"))
    (logits,) = served.signatures["serving_default"](tf.zeros([2, 784])).values()
    assert logits.shape == (2, 10)
