"""Trainer's executor, with real processes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.components.trainer.conftest import Training, numbers, rows_of
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MODEL_FN = """
import os, time
import tensorflow as tf

class Trouble(tf.compat.v1.train.SessionRunHook):
    def __init__(self, params):
        self.params, self.steps = params, 0

    def after_run(self, context, values):
        self.steps += 1
        if self.steps == self.params["at"] and not os.path.exists(self.params["marker"]):
            open(self.params["marker"], "w").close()
            {trouble}

def model_fn(features, labels, mode, params):
    images = tf.reshape(features["image"], [-1, 784])
    logits = tf.compat.v1.layers.dense(images, params["num_classes"], name="linear")
    outputs = {{"probabilities": tf.nn.softmax(logits)}}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs={{
            "serving_default": tf.estimator.export.PredictOutput(outputs)}})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, -1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={{"accuracy": accuracy}},
                                      training_hooks=[Trouble(params)])
"""


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a user's package with a model_fn that fails once, at a step."""

    def write(trouble: str, at: int = 30, restarts: int = 0) -> dict:
        # PYTHONPATH cannot contain this folder.
        package = tmp_path / "user:own"
        package.mkdir(exist_ok=True)
        (package / "my_model.py").write_text(MODEL_FN.format(trouble=trouble))
        monkeypatch.syspath_prepend(str(package))
        return {
            "trainer": {
                "model": "my_model:model_fn",
                "params": {"at": at, "marker": str(tmp_path / "marker")},
                "distribution": {"max_restarts": restarts},
            }
        }

    return write


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, digits, settings):
    """A training shared by tests that only inspect its results: the folder, the model, the model_run."""
    training = Training(tmp_path_factory.mktemp("trained") / "Trainer", digits)
    # 1.33 x 1,437 examples, 32 per step.
    return training, *training.run(settings({"train_steps": None, "train_epochs": 1.33}, encoded="as_is"), steps=0)


def test_a_declared_network_is_trained_evaluated_and_exported(trained):
    import tensorflow as tf

    training, model, model_run = trained

    serving = tf.saved_model.load(str(model / "Format-Serving"))
    assert sorted(serving.signatures) == ["encoded", "images", "serving_default"]
    assert (model / "Format-TFMA" / "saved_model.pb").exists() == stacks.current().has_eval_saved_model
    run = Path(model_run.uri)
    assert tf.train.latest_checkpoint(str(run)).endswith("model.ckpt-60")
    assert list(run.glob("events.out.tfevents.*"))
    assert json.loads((run / "declaration.json").read_text())["trainer"]["train_epochs"] == 1.33
    assert (run / "logs" / "chief-0.attempt-1.log").stat().st_size > 0
    assert numbers(model_run, "train_epochs", "first_step", "last_step") == [1.33, 0, 60]
    assert model_run.get_float_custom_property("eval_accuracy") > 0.85
    # No other files are left.
    (note,) = (training.root / "training").iterdir()
    assert json.loads(note.read_text())["model_run"] == model_run.uri


def test_images_and_examples_are_served_alike_and_as_evaluated(trained, digits):
    import numpy as np
    import tensorflow as tf

    from tfx_estimator.testing import export_and_serve

    _, model, model_run = trained
    rows = rows_of(digits["examples"][0].uri)
    images = np.stack([np.frombuffer(row["image"], np.uint8) for row in rows]).reshape(-1, 28, 28, 1)
    serving = tf.saved_model.load(str(model / "Format-Serving"))
    by_image = serving.signatures["images"](images=tf.constant(images))["probabilities"].numpy()
    by_example = export_and_serve(model / "Format-Serving", rows)["probabilities"]
    np.testing.assert_array_equal(by_image, by_example)
    accuracy = float((by_image.argmax(-1) == [row["label"] for row in rows]).mean())
    assert accuracy == pytest.approx(model_run.get_float_custom_property("eval_accuracy"), abs=1e-6)


def test_an_error_of_the_users_code_is_reported_with_its_line_not_retried_and_a_services_next_job_resumes(
    tmp_path, digits, settings, own_model
):
    jobs = [Training(tmp_path / "root" / f"job-{number}" / "Trainer", digits) for number in (1, 2)]
    made = settings(**own_model('raise ValueError("bad pixel")', restarts=3), training_root=str(tmp_path / "trainings"))
    with scratch.used():
        with pytest.raises(errors.TaskFailedError, match="ValueError: bad pixel") as raised:
            jobs[0].run(made)
        # For the summary of the run.
        noted = Path(scratch.noted(scratch.of_this_run(), scratch.TRAINING_FOLDER))
    assert noted.parent == tmp_path / "trainings"
    assert "my_model.py" in str(raised.value)
    assert "chief-0.attempt-1.log" in str(raised.value)
    assert not (jobs[0].root / "model" / "1" / "Format-Serving").exists()
    # Three restarts were left, but would not help.
    assert len(list(noted.rglob("chief-0.*.log"))) == 1
    with scratch.used():
        model, model_run = jobs[1].run(made)
        assert scratch.noted(scratch.of_this_run(), scratch.TRAINING_FOLDER) == ""
    # Interrupted at step 30; the last checkpoint is of step 20.
    assert numbers(model_run, "first_step", "last_step") == [20, 60]
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    logs = sorted(path.name for path in (Path(model_run.uri) / "logs").glob("*.log"))
    assert logs == ["chief-0.attempt-1.log", "chief-0.attempt-2.log"]
    assert not list((tmp_path / "root").rglob("training"))
    assert not list((tmp_path / "trainings").glob("*.claim*"))


@pytest.mark.long
@pytest.mark.parametrize("workers", [None, 2])
def test_a_model_fn_that_exits_with_code_0_is_named_with_its_line(training, settings, own_model, workers):
    values = own_model("os._exit(0)", restarts=3)
    if workers:
        values["trainer"]["distribution"]["train"] = {"strategy": "multi_worker_mirrored", "workers": workers}
    with pytest.raises(errors.UserCodeError, match="ended with exit code 0 before its work was done") as raised:
        training.run(settings(**values))
    assert 'my_model.py", line 13, in after_run' in str(raised.value)
    assert len(list(training.root.rglob("chief-0.*.log"))) == 1
    assert not (training.root / "model" / "1" / "Format-Serving").exists()


def test_a_killed_task_is_restarted_from_its_last_checkpoint(training, settings, own_model, caplog):
    # The source of the model_fn does not show the params it reads: it passes them on.
    declared = ("trainer.params.at", "trainer.optimizer.momentum", "trainer.train_steps")
    caplog.set_level("WARNING", "absl.tfx_estimator")
    _, model_run = training.run(settings(**own_model("os.kill(os.getpid(), 9)", restarts=1), declared=declared))
    unread = "trainer.optimizer.momentum has no effect: my_model:model_fn does not read it from params"
    assert [message for message in caplog.messages if "no effect" in message] == [unread]
    assert model_run.get_float_custom_property("last_step") == 60
    (restart,) = json.loads(model_run.get_string_custom_property("history"))
    assert restart["cause"] == "chief-0 was killed by SIGKILL"
    assert restart["seconds"] > 0
    # Killed at step 30; checkpoints are 20 steps apart.
    assert restart["lost_steps"] <= 10


def test_a_stalled_task_is_ended_after_stall_timeout(training, settings, own_model):
    values = own_model("time.sleep(600)")
    started = time.monotonic()
    with pytest.raises(errors.TaskStalledError, match="stall_timeout"):
        training.run(settings(**values, stall_timeout=4.0))
    assert time.monotonic() - started < 90


def test_a_task_that_never_starts_is_ended_after_start_timeout(training, settings):
    with pytest.raises(errors.TaskStalledError, match="start_timeout"):
        training.run(settings(start_timeout=0.5))


def test_a_killed_task_is_reported_with_its_signal_and_its_export_is_finished(training, settings, own_model):
    # The last step's hook runs before the export.
    values = own_model("os.kill(os.getpid(), 9)", at=60)
    values["trainer"]["save_checkpoints_steps"] = 60
    with pytest.raises(errors.TaskFailedError, match="chief-0 was killed by SIGKILL"):
        training.run(settings(**values))
    # Other deadlines, restarts and logging keep the same training.
    values["trainer"].update(log_every_steps=7, distribution={"max_restarts": 2, "network": "host"})
    model, model_run = training.run(settings(**values, stall_timeout=99.0))
    assert numbers(model_run, "first_step", "last_step") == [60, 60]
    assert model_run.get_float_custom_property("eval_accuracy") > 0.7
    assert (model / "Format-Serving" / "saved_model.pb").exists()
