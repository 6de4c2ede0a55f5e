"""Reports of runs that left few files or none: what exists is shown, and each missing part has one sentence."""

from __future__ import annotations

import html
import math
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.folders import GARBLED
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.examples import open_data
from tfx_estimator.pipeline.report.page import LeftOutError, show_number, show_percent, show_seconds
from tfx_estimator.pipeline.report.source import find_runs, log_folders
from tfx_estimator.pipeline.run.runs import list_runs

FAILED = {
    "state": "failed",
    "exit_code": 3,
    "error": {
        "type": "DamagedDataError",
        "what": "<script>alert(1)</script> \x1b[31m\u202e.bin",
        "expected": "a whole & sound file",
        "todo": "get it again",
    },
    "started": "2026-11-22T01:00:00+00:00",
    "seconds": 61.2,
    "components": [
        {"node": "TfdsExampleGen", "state": "failed", "seconds": 1.5, "execution_id": None, "upstream": []},
        {
            "node": "Trainer",
            "state": "not reached",
            "seconds": 0.0,
            "execution_id": None,
            "upstream": ["TfdsExampleGen"],
        },
    ],
    "warnings": [{"component": "Trainer", "text": "half <as> large\nand more"}],
}


def report(*args: str, code: int = 0) -> None:
    assert main(["report", *args]) == code


def text_of(page: Path) -> str:
    """Returns the visible text of a page, approximately."""
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_a_failed_run_is_shown_as_far_as_it_got(leave_run, capsys):
    logs = leave_run("20261122-010000", **FAILED)
    # A real run has a database; without it, the artifacts are unknown.
    report(str(logs))
    assert capsys.readouterr().out == f"wrote {logs}/report.html\n"
    page, raw = text_of(logs / "report.html"), (logs / "report.html").read_text(encoding="utf-8")
    assert "own failed" in page
    assert "DamagedDataError, exit code 3" in page
    assert "Expected: a whole & sound file To do: get it again" in page
    assert "Trainer: half <as> large and more" in page
    assert "TfdsExampleGen failed 1.5 s" in page
    assert "Trainer , after TfdsExampleGen not reached —" in page
    assert f"There is no {logs.parent.parent}/metadata.sqlite" in page
    assert "took 1 min 01 s" in page
    # The graph of components has one edge.
    assert raw.count('<path d="M') == 1
    assert "trainer.train_steps: 5 --set" in page
    assert "3 values were chosen" in page


def test_foreign_text_is_escaped_and_the_page_loads_nothing_from_outside(leave_run):
    logs = leave_run("20261122-010000", **FAILED)
    report(str(logs))
    raw = (logs / "report.html").read_text(encoding="utf-8")
    assert "<script" not in raw
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\x1b[31m\\u202e.bin" in raw
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", raw)

    # Except XML namespaces.
    assert "://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", raw)
    assert "default-src 'none'" in raw


def test_the_page_of_a_moved_run_names_no_path_of_another_run(leave_run, tmp_path):
    then = str(tmp_path / "own")
    places = {"model_run": f"{then}/artifacts/Trainer/model_run/6", "pushed": f"{then}/serving/1795610480"}
    logs = leave_run("20261122-010000", **{**FAILED, **places})
    # A copy of only the log folder refers to the original model.
    alone = tmp_path / "alone" / "logs" / logs.name
    shutil.copytree(logs, alone)
    report(str(alone))
    assert f"tensorboard --logdir {then}/artifacts/Trainer/model_run/6 " in text_of(alone / "report.html")
    (tmp_path / "own" / "artifacts").mkdir()
    moved = (tmp_path / "own").rename(tmp_path / "moved")
    # Another run is at the old place now.
    leave_run("20261122-010000", **{**FAILED, **places})
    report(str(moved))
    page = text_of(moved / "logs" / logs.name / "report.html")
    assert f"tensorboard --logdir {moved}/artifacts/Trainer/model_run/6 " in page
    assert f"Pushed model {moved}/serving/1795610480 " in page
    # A model pushed to a place outside the folder is not moved.
    (tmp_path / "own").rename(tmp_path / "again")
    again = leave_run("20261122-020000", **{**FAILED, **places, "pushed": "/srv/models/1"})
    (tmp_path / "own" / "artifacts").mkdir()
    report(str((tmp_path / "own").rename(tmp_path / "third")))
    assert "Pushed model /srv/models/1 " in text_of(tmp_path / "third" / "logs" / again.name / "report.html")


def test_a_run_of_a_table_has_its_own_metrics_and_no_pictures(leave_run):
    metrics = {"auc": 0.92684, "binary_crossentropy": 0.3502, "skill": 0.25, "calibration": 1.0125}
    reason = "skill 0.0000 is not above 0: the model is no better than the constant predictor"
    facts = {"evaluated": 5000, "blessed": False, "reasons": [reason], "accuracy": None, "loss": None}
    hours = {"hour": {"9": {"auc": 0.75, "example_count": 7}}}
    logs = leave_run("20261122-010000", state="succeeded", metrics=metrics, slice_metrics=hours, **facts)
    report(str(logs))
    page = text_of(logs / "report.html")
    assert "AUC 0.9268 5,000 evaluation examples log loss 0.3502 5,000 evaluation examples skill 0.25 1 is" in page
    assert f"blessed no {reason}" in page
    assert "calibration 1.0125" in page
    assert "mean loss" not in page
    outputs = {("CsvExampleGen", "examples"): Output(str(logs), {}), ("Trainer", "model"): Output(str(logs), {})}
    with pytest.raises(LeftOutError, match="rows of a table"):
        open_data(outputs)


def test_a_killed_run_has_a_report_that_says_so(leave_run, tmp_path):
    leave_run("20261122-010000", **FAILED)
    logs = leave_run("20261122-020000")
    # The pipeline's folder means its latest run.
    report(str(tmp_path / "own"))
    assert "no summary.json: it was killed, or is still running" in text_of(logs / "report.html")


@pytest.mark.parametrize("how", GARBLED)
def test_a_garbled_file_is_left_out(leave_run, how):
    logs = leave_run("20261122-010000", **FAILED)
    declaration, summary = logs / "declaration.yaml", logs / "summary.json"
    declared = declaration.read_bytes()
    declaration.write_bytes(GARBLED[how](declared))
    report(str(logs))
    assert "get it again" in text_of(logs / "report.html")
    assert [each.state for each in list_runs(str(logs.parents[2]))] == ["failed"]
    declaration.write_bytes(declared)
    summary.write_bytes(GARBLED[how](summary.read_bytes()))
    report(str(logs))
    page = text_of(logs / "report.html")
    assert "no summary.json: it was killed, or is still running" in page
    assert "train_steps" in page
    assert [each.state for each in list_runs(str(logs.parents[2]))] == [None]


def test_all_arguments_that_are_not_runs_are_reported_at_once(leave_run, tmp_path, capsys):
    logs = leave_run("20261122-010000", **FAILED)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    wrong = [str(tmp_path / name) for name in ("missing", "file", "empty")]
    report(str(logs), *wrong, "gs://bucket/run", code=2)
    stderr = capsys.readouterr().err
    for name, why in zip([*wrong, "gs://bucket/run"], ("no such folder", "not a folder", "neither", "address")):
        assert re.search(f"'{re.escape(name)}': .*{why}", stderr)
    assert "a run's log folder" in stderr
    assert "RUNS/NAME/logs/TIME" in stderr


def test_several_runs_are_compared_in_columns(leave_run, tmp_path, monkeypatch, capsys):
    good = {"state": "succeeded", "accuracy": 0.9833, "loss": 0.05, "blessed": True, "training": {"last_step": 600.0}}
    runs = [
        leave_run("20261122-010000", **good, versions={"numpy": "1.26.4"}),
        leave_run("20261122-020000", steps=50, **FAILED, versions={"numpy": "1.26.5"}),
    ]
    monkeypatch.chdir(tmp_path)
    report(*map(str, runs))
    assert capsys.readouterr().out == "wrote report.html\n"
    page = text_of(tmp_path / "report.html")
    assert "result 20261122-010000 20261122-020000 state succeeded failed accuracy 98.33 % —" in page
    assert "steps 600 —" in page
    assert "value 20261122-010000 20261122-020000 trainer.train_steps 5 50 " in page
    assert "seed" not in page
    assert "numpy 1.26.4 1.26.5" in page
    assert "<script>alert(1)</script> \\x1b[31m\\u202e.bin" in page
    assert not list(tmp_path.glob("own/logs/*/report.html"))


def test_numbers_are_shown_in_readable_units():
    assert list(map(show_seconds, (0.04, 59.9, 61.2, 7325))) == ["0.0 s", "59.9 s", "1 min 01 s", "2 h 02 min"]
    assert list(map(show_percent, (None, 0, 0.98765))) == ["—", "0.0 %", "98.8 %"]
    assert list(map(show_number, (None, 0.0, 0.036083, 16625.7, math.nan))) == ["—", "0", "0.03608", "16,626", "nan"]


def test_the_trials_of_a_tuning_are_a_table_and_charts(leave_run):
    rate, name, augment = "trainer.optimizer.learning_rate", "trainer.optimizer.name", "trainer.augment"
    trials = [
        {"number": 1, "values": {rate: 0.1, name: "sgd"}, "status": "failed", "score": None, "reason": "it <diverged>"},
        {"number": 2, "values": {rate: 0.001, name: "adam"}, "status": "completed", "score": 0.8, "reason": ""},
        {"number": 3, "values": {rate: 0.01, name: "adam"}, "status": "completed", "score": 0.9, "reason": ""},
    ]
    for trial, value in zip(trials, ([], None, [{"random_crop": {"padding": 1}}])):
        trial["values"][augment] = value
    tuning = {
        "objective": {"metric": "accuracy", "mode": "max"},
        "ranges": {rate: "0.001 to 0.1, log", name: "sgd, adam", augment: "[], null, [{random_crop: {padding: 1}}]"},
        "best": 3,
        "trials": [{"metrics": {}, "steps": 60, "seconds": 7.5, "parent": None, **each} for each in trials],
    }
    logs = leave_run("20261122-010000", **{**FAILED, "tuning": tuning})
    report(str(logs))
    page, raw = text_of(logs / "report.html"), (logs / "report.html").read_text(encoding="utf-8")
    assert "trial learning_rate optimizer.name augment accuracy steps took" in page
    assert "1 0.1 sgd [] — 60 7.5 s it <diverged>" in page
    best = "3 0.01 adam [{random_crop: {padding: 1}}] 0.9 60 7.5 s the best; the model is trained with these values"
    assert best in page
    assert "accuracy by learning_rate" in page
    assert "accuracy by optimizer.name" not in page
    section = raw[raw.index('id="tuning"') : raw.index('id="training"')]
    assert section.count("<svg") == 2


def test_the_latest_run_is_the_last_started_and_not_the_last_by_name(leave_run, tmp_path):
    leave_run("20261123-140000", steps=1, started="2026-11-23T14:00:00+14:00")
    leave_run("20261122-190000", steps=2, started="2026-11-22T19:00:00-11:00")
    assert [os.path.basename(each) for each in log_folders(str(tmp_path / "own" / "logs"))] == [
        "20261123-140000",
        "20261122-190000",
    ]
    assert find_runs([str(tmp_path / "own")])[0].values["trainer.train_steps"] == 2
    # Within one second, the tenth is the latest; a killed run has no summary, so its file's time counts.
    for name in ("second", "second-2", "second-10"):
        leave_run(name, started="2026-11-22T20:00:00-11:00")
    assert find_runs([str(tmp_path / "own")])[0].time == "second-10"
    killed = leave_run("20200101-000000")
    os.utime(killed / "declaration.yaml", (1900000000, 1900000000))
    assert find_runs([str(tmp_path / "own")])[0].time == "20200101-000000"
