"""What a run writes to MLflow, and how it ends if that fails; no MLflow client is needed."""

from __future__ import annotations

import importlib.util
import io
import json
import time
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.report.training import Series
from tfx_estimator.pipeline.run import tracking
from tfx_estimator.pipeline.run.summary import FAILED, INTERRUPTED, Summary
from tfx_estimator.pipeline.run.terminal import make_console
from tfx_estimator.pipeline.run.view import View


def test_metrics_come_from_the_summary_and_the_curves():
    summary = {
        "accuracy": 0.5,
        "loss": None,
        "evaluated": 10,
        "seconds": 3.5,
        "metrics": {"classId:1/precision": 0.25, "broken": None},
        "training": {"last_step": 7.0},
        "examples": {"eval": 10},
        "components": [{"node": "Trainer", "seconds": 2.0}],
    }
    curves = {
        "global_step/sec": {"train": Series([1, 2], [5.0, float("nan")], [100.5, 101.0])},
        "loss": {"eval/a": Series([2], [1.5], [102.25])},
    }
    assert list(tracking.metrics_of(summary, curves)) == [
        ("accuracy", 0.5, 7, None),
        ("evaluated", 10.0, 7, None),
        ("classId_1/precision", 0.25, 7, None),
        ("run/seconds", 3.5, 7, None),
        ("training/last_step", 7.0, 7, None),
        ("examples/eval", 10.0, 7, None),
        ("component_seconds/Trainer", 2.0, 7, None),
        ("train/global_step_sec", 5.0, 1, 100.5),
        ("eval_a/loss", 1.5, 2, 102.25),
    ]
    # A run without results.
    assert list(tracking.metrics_of({"seconds": 0.5, "components": ()}, {})) == [("run/seconds", 0.5, 0, None)]


def test_parameters_are_the_declared_values():
    values = {
        "name": "own",
        "trainer.optimizer.learning_rate": 0.1,
        "data.version": None,
        "evaluator.slices": ["label"],
        "trainer.class_weights.ä b:c": 2.0,
        "tracking.mlflow": "http://user:secret@host",
        "trainer.params.text": "x" * 600,
    }
    assert tracking.parameters_of(values) == {
        "trainer.optimizer.learning_rate": "0.1",
        "evaluator.slices": "[label]",
        "trainer.class_weights._ b_c": "2.0",
        "trainer.params.text": "x" * 500,
    }


@pytest.mark.parametrize("address", ["https://me:hunter2@host:5000/x", "HTTP://hunter2@host"])
def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path, monkeypatch, address):
    monkeypatch.setenv("ADDRESS", address)
    (tmp_path / "mine.yaml").write_text("tracking: {mlflow: '${ADDRESS}'}\n")
    message = r"(?s)mine.yaml:1  tracking.mlflow\n.*MLFLOW_TRACKING_PASSWORD"
    with pytest.raises(DeclarationError, match=message) as caught:
        load(f"digits+{tmp_path}/mine.yaml")
    assert "hunter2" not in str(caught.value)
    for fine in ("http://host:5000/a@b", "http://[::1]:5000", str(tmp_path / "a@b")):
        monkeypatch.setenv("ADDRESS", fine)
        assert load(f"digits+{tmp_path}/mine.yaml").declaration.tracking.mlflow == fine


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import time; time.sleep(60)", "it took longer than 1 s"),
        ("sys.exit(3)", "its client ended with exit code 3"),
        ("open(sys.argv[3], 'w').write('{\"error\": \"E: no server\"}')", "E: no server"),
    ],
)
def test_a_server_that_fails_or_hangs_causes_a_warning(tmp_path: Path, monkeypatch, program, message):
    monkeypatch.setattr(tracking, "_PROGRAM", f"import sys; {program}")
    out, results = io.StringIO(), Summary("own.yaml")
    view = View(make_console(out))
    begun = time.monotonic()
    # The pipeline itself succeeded.
    with tracking.tracked("http://127.0.0.1:9", results, view, str(tmp_path), seconds=1):
        results.end()
    view.close()
    assert time.monotonic() - begun < 15
    assert results.exit_code == 0
    assert message in out.getvalue()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["state"] == "succeeded"
    assert [each["component"] for each in summary["warnings"]] == ["tracking"]
    assert message in summary["warnings"][0]["text"]


# Stands in for MLflow: writes the run's status to a file; logging an artifact fails or hangs.
CLIENT = """\
import json, time
from types import SimpleNamespace

class MlflowClient:
    def __init__(self, tracking_uri):
        self.path, self.run = tracking_uri.removeprefix("file://"), {"status": "RUNNING"}
    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name)
    def create_run(self, *args, **options):
        return SimpleNamespace(info=SimpleNamespace(run_id="1"))
    def log_batch(self, *args, **options):
        pass
    def log_artifact(self, *args):
        while True:
            try:
                ARTIFACT
            except Exception as error:
                if "full" in str(error):
                    raise
    def set_tag(self, made, key, value):
        self._note(**{key: value})
    def set_terminated(self, made, status, ended):
        self._note(status=status)
    def _note(self, **fields):
        self.run.update(fields)
        open(self.path, "w").write(json.dumps(self.run))
"""


@pytest.mark.parametrize(
    ("artifact", "message"),
    [("raise OSError('it is full')", "OSError: it is full"), ("time.sleep(60)", "longer than 6 s")],
)
def test_a_run_that_is_written_incompletely_is_marked_failed_in_mlflow(tmp_path: Path, monkeypatch, artifact, message):
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "__init__.py").write_text(CLIENT.replace("ARTIFACT", artifact))
    (tmp_path / "mlflow" / "entities.py").write_text("Metric = Param = lambda *args: args\n")
    if "longer" in message:
        monkeypatch.setattr(tracking, "_OWN_SHARE", 0.2)
    monkeypatch.syspath_prepend(str(tmp_path))
    (logs := tmp_path / "own" / "logs" / "20261121-120000").mkdir(parents=True)
    (logs / "declaration.yaml").write_text("name: own\n")
    Summary("own.yaml", name="own").write(str(logs / "summary.json"))
    begun = time.monotonic()
    with pytest.raises(PipelineError, match=message):
        tracking._write(str(tmp_path / "noted"), str(logs), 30)
    assert time.monotonic() - begun < 30
    status = json.loads((tmp_path / "noted").read_text())
    assert status["status"] == "FAILED"
    assert message in status["not_written"]


@pytest.mark.parametrize(("state", "uri", "writes"), [(INTERRUPTED, "x", 0), (FAILED, "x", 1), (FAILED, None, 0)])
def test_a_failed_run_is_written_and_an_interrupted_one_is_not(tmp_path, monkeypatch, state, uri, writes):
    calls = []
    monkeypatch.setattr(tracking, "_write", lambda *args: calls.append(args) or "there")
    results, view = Summary("own.yaml"), View(make_console(io.StringIO()))

    def run() -> None:
        with tracking.tracked(uri, results, view, str(tmp_path)):
            results.state = state
            raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        run()
    view.close()
    assert len(calls) == writes


def test_tracking_without_an_mlflow_client_is_refused_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    tracking.check_client(load("digits").declaration)
    declaration = load("digits", ["tracking={mlflow: mlruns}"]).declaration
    assert declaration.tracking.mlflow == str(tmp_path / "mlruns")
    with pytest.raises(DeclarationError, match="MLflow is not installed"):
        tracking.check_client(declaration)
