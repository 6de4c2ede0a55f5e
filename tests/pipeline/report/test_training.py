"""The training section of a report: reading TensorBoard event files, and finding those of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from tfx_estimator.pipeline.report.page import LeftOutError, Missing
from tfx_estimator.pipeline.report.source import read_run
from tfx_estimator.pipeline.report.training import Series, chart_training, conversion_rows, find_training, read_training


def write(path: Path, *events: tuple[float, int, dict[str, float] | None]) -> Path:
    """Writes (time, step, scalars) as an Estimator does; None instead of scalars marks the start of a session."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for time, step, scalars in events:
            event = event_pb2.Event(wall_time=time, step=step)
            if scalars is None:
                event.session_log.status = event_pb2.SessionLog.START
            for tag, value in (scalars or {}).items():
                event.summary.value.add(tag=tag, simple_value=value)
            file.write(event.SerializeToString())
    return path


def test_training_and_evaluation_of_one_metric_share_a_chart(tmp_path):
    write(
        tmp_path / "events.out.tfevents.1.host",
        (10.0, 0, None),
        (11.0, 1, {"loss": 4.0, "train_accuracy": 0.25, "global_step/sec": 8.0}),
        (12.0, 101, {"loss": 2.0, "train_accuracy": 0.5}),
    )
    # An evaluation's `loss` is a mean of batch means; the mean over examples is shown instead.
    scalars = {"loss": 9.0, "average_loss": 3.0, "accuracy": 0.75}
    write(tmp_path / "eval" / "events.out.tfevents.2.host", (13.0, 100, scalars))
    found = read_training(str(tmp_path))
    assert found.curves == {
        "loss": {"train": Series([1, 101], [4.0, 2.0]), "eval": Series([100], [3.0])},
        "accuracy": {"train": Series([1, 101], [0.25, 0.5]), "eval": Series([100], [0.75])},
        "global_step/sec": {"train": Series([1], [8.0])},
    }
    assert found.starts == [(0.0, 0)]
    assert found.progress[-1] == (2.0, 101)
    charts = chart_training(found)
    assert [each.title for each in charts] == ["loss", "accuracy", "steps per second"]
    assert charts[0].text == "last: train 2 at step 101, eval 3 at step 100"
    # The page's colours, not the file's.
    assert "var(--series-2)" in charts[0].svg
    assert "#0303" not in charts[0].svg


def test_a_restart_replaces_the_steps_after_its_checkpoint(tmp_path):
    write(tmp_path / "a.tfevents.1", (0.0, 0, None), (1.0, 10, {"loss": 3.0}), (2.0, 20, {"loss": 2.0}))
    write(tmp_path / "a.tfevents.2", (9.0, 10, None), (10.0, 15, {"loss": 2.5}), (11.0, 25, {"loss": 1.5}))
    found = read_training(str(tmp_path))
    assert found.curves["loss"]["train"] == Series([10, 15, 25], [3.0, 2.5, 1.5])
    assert found.curves["loss"]["train"].times == [1.0, 10.0, 11.0]
    assert found.starts == [(0.0, 0), (9.0, 10)]


def test_a_truncated_file_is_read_up_to_its_end(tmp_path):
    path = write(tmp_path / "a.tfevents.1", (1.0, 10, {"loss": 3.0}), (2.0, 20, {"loss": 2.0}))
    path.write_bytes(path.read_bytes()[:-5])
    assert read_training(str(tmp_path)).curves["loss"]["train"] == Series([10], [3.0])


def test_scalars_of_tensorflow_2_are_read_and_texts_are_not(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path / "validation"))
    with writer.as_default():
        tf.summary.scalar("epoch_loss", 0.5, step=3)
        tf.summary.text("words", "not a number", step=3)
    writer.close()
    assert read_training(str(tmp_path)).curves == {"loss": {"validation": Series([3], [0.5])}}


def test_the_measurements_of_a_conversion_are_shown(tmp_path):
    assert conversion_rows(str(tmp_path)) is None
    proof = {"logits": {"estimator": 2e-7}, "next_steps": {"slot": 0.0}, "steps": 20, "classes": 1, "examples": 1359}
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    assert conversion_rows(str(tmp_path)) == [
        ("logits, estimator", ["2e-07"]),
        ("slot after 20 more steps", ["0"]),
        ("examples with another class", ["1 of 1,359"]),
    ]
    # Of an older release.
    del proof["next_steps"]
    (tmp_path / "proof.json").write_text(json.dumps({**proof, "compared": "probabilities"}))
    assert conversion_rows(str(tmp_path)) == [
        ("probabilities, estimator", ["2e-07"]),
        ("examples with another class", ["1 of 1,359"]),
    ]


TRAINER = {"node": "Trainer", "state": "failed", "seconds": 1.0, "execution_id": None, "upstream": []}


def leave_training(home: Path, name: str) -> Path:
    folder = home / "artifacts" / "Trainer" / "training" / name
    folder.mkdir(parents=True)
    return folder


def found(logs: Path) -> str:
    return find_training(read_run(str(logs)), Missing("no model_run"))


def test_the_training_is_the_one_that_the_summary_names(leave_run, tmp_path):
    mine = leave_training(tmp_path / "own", "a-5")
    leave_training(tmp_path / "own", "b-5")
    logs = leave_run("20261122-010000", state="failed", components=[TRAINER], training_folder=str(mine))
    assert found(logs) == str(mine)
    # The folder of runs may be moved.
    moved = (tmp_path / "own").rename(tmp_path / "moved")
    assert found(moved / "logs" / logs.name) == str(moved / "artifacts/Trainer/training/a-5")


def test_a_training_that_a_later_run_published_is_not_replaced_by_another(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5")
    logs = leave_run(
        "20261122-010000", state="failed", components=[TRAINER], training_folder=str(tmp_path / "own" / "a-5")
    )
    with pytest.raises(LeftOutError, match="A later run has resumed this training"):
        found(logs)


def test_a_run_that_did_not_train_has_no_training(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5")
    with pytest.raises(LeftOutError, match="no model_run"):
        found(leave_run("20261122-010000", state="failed", components=[TRAINER], training_folder=None))
