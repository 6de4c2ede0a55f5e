"""Existing TFX module files, unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import served_accuracy
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# As in TFX's Estimator examples: the model_dir is fn_args.serving_model_dir, and the steps are those of fn_args.
TRAINER_FN = """
import tensorflow as tf
import tensorflow_model_analysis as tfma
import tensorflow_transform as tft
from tfx_bsl.tfxio import dataset_options


def _features(transformed):
    return {"pixels": tf.reshape(transformed["image"], [-1, 784])}


def _input_fn(files, graph, batch):
    spec = graph.raw_feature_spec()

    def parse(serialized):
        transformed = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        label = transformed.pop("label")
        return _features(transformed), label

    names = tf.io.gfile.glob(files)
    return tf.data.TFRecordDataset(names).repeat().batch(batch).map(parse)


def trainer_fn(fn_args, schema):
    assert [feature.name for feature in schema.feature] == ["image", "label"]
    graph = tft.TFTransformOutput(fn_args.transform_output)
    config = tf.estimator.RunConfig(save_checkpoints_steps=20, keep_checkpoint_max=1)
    config = config.replace(model_dir=fn_args.serving_model_dir)
    column = tf.feature_column.numeric_column("pixels", shape=[784])
    estimator = tf.estimator.DNNClassifier([32], [column], n_classes=10, config=config, optimizer="Adam")

    def serving_receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": graph.raw_feature_spec()["image"]})
        features = _features(graph.transform_raw_features(raw))
        return tf.estimator.export.ServingInputReceiver(features, {"examples": examples})

    def eval_receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        transformed = graph.transform_raw_features(tf.io.parse_example(examples, graph.raw_feature_spec()))
        label = transformed.pop("label")
        return tfma.export.EvalInputReceiver(
            features=_features(transformed), labels=label, receiver_tensors={"examples": examples})

    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(
            lambda: _input_fn(fn_args.train_files, graph, 32), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: _input_fn(fn_args.eval_files, graph, 32), steps=3,
            exporters=[EXPORTERS], name="own"),
        "eval_input_receiver_fn": eval_receiver,
    }
"""
# Records the shown step and the actual one when a checkpoint is written.
LISTENER = """
class Noting(tf.compat.v1.train.CheckpointSaverListener):
    def __init__(self, folder):
        self._folder = folder

    def after_save(self, session, step):
        (shown,) = tf.io.gfile.glob(f"{self._folder}/logs/chief-0.attempt-1.*.step")
        with open(shown, "rb") as file, open(f"{self._folder}/noted", "a") as noted:
            print(int.from_bytes(file.read(8), "little"), int(step), file=noted)


def trainer_fn("""
EXPORTER = 'tf.estimator.FinalExporter("own", serving_receiver)'


@pytest.fixture
def module_file(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "user_module.py"
        path.write_text(text)
        return str(path)

    return write


def test_the_best_model_is_exported_and_metrics_may_be_vectors(training, module_file):
    # The first evaluation comes after 20 steps, the last after 40; the best is the one with the highest loss.
    text = TRAINER_FN.replace(
        "EXPORTERS",
        'tf.estimator.BestExporter("own", serving_receiver, compare_fn=lambda best_eval_result, current_eval_result:'
        ' current_eval_result["loss"] > best_eval_result["loss"])',
    )
    text = text.replace("steps=3,", "steps=3, throttle_secs=0, start_delay_secs=0,")
    text = text.replace(
        "    def serving_receiver",
        "    estimator = tf.estimator.add_metrics(estimator, lambda labels, predictions: {'curve':"
        " tf.compat.v1.metrics.precision_at_thresholds(labels > 4, predictions['probabilities'][:, 0], [.2, .8])})\n\n"
        "    def serving_receiver",
    )
    text = text.replace("\ndef trainer_fn(", LISTENER)
    text = text.replace("max_steps=", "saving_listeners=[Noting(fn_args.model_run_dir)], max_steps=")
    model, model_run = training.run(Settings(), steps=40, module_file=module_file(text))
    # A task that is killed during the write has shown all the lost steps.
    assert (Path(model_run.uri) / "noted").read_text().split("\n") == ["0 0", "20 20", "40 40", ""]
    versions = sorted((Path(model_run.uri) / "Format-Serving" / "export" / "own").iterdir())
    exported = (versions[-1] / "variables" / "variables.index").read_bytes()
    assert (model / "Format-Serving" / "variables" / "variables.index").read_bytes() == exported
    assert model_run.get_float_custom_property("last_step") == 40
    assert model_run.get_float_custom_property("eval_curve") == 0.0  # not reported
    assert "eval_curve" not in model_run.mlmd_artifact.custom_properties


def test_training_ended_early_by_a_hook_exports_a_model(training, module_file):
    import tensorflow as tf

    # In TensorFlow a FinalExporter exports only at max_steps.
    text = TRAINER_FN.replace("EXPORTERS", EXPORTER)
    text = text.replace("max_steps=", "hooks=[tf.estimator.StopAtStepHook(last_step=25)], max_steps=")
    model, model_run = training.run(Settings(), steps=60, module_file=module_file(text))
    number = model_run.get_float_custom_property
    assert tf.train.load_variable(str(model / "Format-Serving" / "variables" / "variables"), "global_step") == 25
    assert number("last_step") == 25
    assert number("eval_average_loss") > 0
    reason = model_run.get_string_custom_property("stopped_early")
    assert reason == "at step 25 of 60: a hook ended training, or its input ended"


@pytest.mark.long
def test_a_final_exporter_exports_the_declared_best_and_a_best_exporter_still_works(training, module_file, settings):
    import tensorflow as tf

    # Its checkpoints are in its own folder, which keeps the last one. A higher loss counts as better.
    text = TRAINER_FN.replace("EXPORTERS", f'{EXPORTER}, tf.estimator.BestExporter("lowest", serving_receiver)')
    section = {"module_file": module_file(text), "keep_best": {"metric": "average_loss", "mode": "max"}}
    declared = settings({**section, "train_steps": 60})
    model, model_run = training.run(declared, module_file=section["module_file"])
    number = model_run.get_float_custom_property
    assert (number("last_step"), number("exported_step")) == (60, 20)
    run = Path(model_run.uri)
    name = "dnn/logits/bias"
    best = tf.train.load_variable(str(run / "best" / "best.ckpt-20"), name)
    for folder in ("Format-Serving", "Format-TFMA") if stacks.current().has_eval_saved_model else ("Format-Serving",):
        exported = tf.train.load_variable(str(model / folder / "variables" / "variables"), name)
        assert exported.tolist() == best.tolist()
    assert len(list((run / "Format-Serving" / "export" / "own").iterdir())) == 1
    assert list((run / "Format-Serving" / "export" / "lowest").iterdir())
    last = tf.train.load_variable(tf.train.latest_checkpoint(str(run / "Format-Serving")), name)
    assert last.tolist() != best.tolist()


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "raised", "message"),
    [
        # A child process does the work.
        ("while time.process_time() < 10: pass", errors.ExportError, "training ended without a model"),
        ("time.sleep(600)", errors.TaskStalledError, "stall_timeout"),
    ],
)
def test_a_silent_run_fn_may_compute_beyond_stall_timeout(training, module_file, text, raised, message):
    text = f"""
import subprocess, sys
def run_fn(fn_args):
    subprocess.run([sys.executable, "-c", "import time\\n{text}"])
"""
    with pytest.raises(raised, match=message):
        training.run(
            Settings(arguments={"distribution": {"max_restarts": 0}}, stall_timeout=4.0), module_file=module_file(text)
        )


def test_a_module_that_violates_the_contract_is_refused(training, module_file):
    with pytest.raises(errors.UserCodeError, match="has no exporter"):
        training.run(Settings(), steps=10, module_file=module_file(TRAINER_FN.replace("EXPORTERS", "")))
    assert not (training.root / "model" / "1" / "Format-Serving").exists()


@pytest.mark.parametrize(
    ("strategy", "batch"),
    [("multi_worker_mirrored", 32), pytest.param("parameter_server", 64, marks=pytest.mark.long)],
)
def test_a_module_file_of_tensorflow_1_is_trained_by_two_workers(training, digits, strategy, batch):
    train = {"strategy": strategy, "workers": 2}
    declared = {
        "name": "old",
        "data": {"dataset": "digits"},
        "trainer": {"tf1": True, "distribution": {"train": train}},
    }
    module = str(Path(__file__).parent / "user" / "tensorflow_1.py")
    declared["trainer"] |= {"module_file": module, "train_steps": 60}
    model, model_run = training.run(Settings(declaration=declared), steps=60, module_file=module)
    log = "".join(each.read_text() for each in Path(model_run.uri).glob("logs/*.log"))
    # A worker's part of the batch of 64, or all of it.
    assert f"train with batches of {batch}\n" in log
    assert model_run.get_float_custom_property("eval_accuracy") > 0.85
    assert served_accuracy(model, digits["examples"][0].uri) > 0.85


def test_a_declared_model_fn_of_tensorflow_1_is_trained(train, digits):
    model, model_run = train(model="model_of_1:model_fn", tf1=True)
    assert model_run.get_float_custom_property("eval_accuracy") > 0.85
    assert served_accuracy(model, digits["examples"][0].uri) > 0.85
