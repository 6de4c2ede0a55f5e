"""The plan that is shown before a pipeline is submitted, and its results."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pipeline.platforms.vertex.vertex_ai import load_job
from tests.pipeline.runners.deployed import IMAGE, OF_STEP_IN_PODS, read_steps, words
from tests.root import ROOT
from tfx_estimator.__main__ import main
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.commands import submit
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.follow import JobStatus
from tfx_estimator.pipeline.platforms.note import Note
from tfx_estimator.pipeline.platforms.plan import Row, estimate_hours, read_plan
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, TFJOB, TRAINJOB, VERTEX
from tfx_estimator.pipeline.platforms.vertex.custom_job import PLAN_KEY, make_plan
from tfx_estimator.pipeline.runners.compiling import compile_declaration


@pytest.mark.parametrize("target", ALL_TARGETS)
def test_every_step_is_shown_with_its_machine(target):
    path = ROOT / "tests" / "golden" / "compiled" / f"digits.{target}.{'json' if target == VERTEX else 'yaml'}"
    rows = read_plan(path.read_text(), target)
    assert {row.image for row in rows} == {IMAGE}
    by_step = {row.step.lower(): row for row in rows}
    if target == TRAINJOB:
        assert [(row.step, row.machine, row.accelerator) for row in rows] == [
            ("3 node", "8 CPUs, 8 GB", "2 nvidia.com/gpu"),
            ("2 ps", "8 CPUs, 16 GB", ""),
            ("1 evaluator", "1.5 CPUs, 8 GB", "1 nvidia.com/gpu"),
        ]
        return
    if target == TFJOB:
        assert [(row.step, row.machine, row.accelerator) for row in rows] == [
            ("1 chief", "8 CPUs, 8 GB", "2 nvidia.com/gpu"),
            ("2 worker", "8 CPUs, 8 GB", "2 nvidia.com/gpu"),
            ("2 ps", "8 CPUs, 16 GB", ""),
            ("1 evaluator", "1.5 CPUs, 8 GB", "1 nvidia.com/gpu"),
        ]
        return
    assert (rows[0].step.lower(), rows[-1].step.lower()) == ("tfdsexamplegen", "pusher")
    assert by_step["trainer"].machine == "8 CPUs, 30 GB"
    assert by_step["trainer"].accelerator == f"2 {'NVIDIA_TESLA_T4' if target == VERTEX else 'nvidia.com/gpu'}"
    assert by_step["statisticsgen"].machine == "2 CPUs, 3.75 GB"
    assert {"tfdsexamplegen", "transform", "evaluator", "pusher"} <= by_step.keys()


def test_the_machines_of_a_custom_job_are_shown():
    job = json.loads((ROOT / "tests" / "golden" / "compiled" / "digits.vertex.json").read_text())
    workers = "{machine_type: n1-standard-16, accelerator: NVIDIA_TESLA_T4, accelerators: 4}"
    machines = f"deploy.vertex={{machine: {{machine_type: n1-standard-8}}, worker: {workers}}}"
    cluster = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 3}"
    plan = make_plan(load_job("deploy.nodes.Trainer=null", "trainer.global_batch_size=66", cluster, machines))
    trainer = job["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]
    trainer["inputs"]["parameters"][PLAN_KEY] = {"runtimeValue": {"constant": plan.to_json()}}
    defined = job["pipelineSpec"]["components"]["Trainer"]["inputDefinitions"]["parameters"]
    defined[PLAN_KEY] = {"parameterType": "STRING"}
    rows = read_plan(json.dumps(job), VERTEX)
    place = [row.step for row in rows].index("Trainer")
    assert rows[place + 1 : place + 3] == [
        Row("  1 chief", "n1-standard-8", "", IMAGE),
        Row("  2 worker", "n1-standard-16", "4 NVIDIA_TESLA_T4", IMAGE),
    ]


def test_the_pods_that_a_step_starts_are_shown(tmp_path):
    overrides = (
        *(*OF_STEP_IN_PODS, "deploy.nodes.default={cpu: 2, memory_gb: 8}"),
        "deploy.nodes.Trainer={cpu: 8, accelerator: nvidia.com/gpu, retries: 2}",
        "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 3}",
        "trainer.global_batch_size=66",
    )
    file = tmp_path / "it.yaml"
    assert main(["compile", "digits", "--target", "kubeflow", "--output", str(file), *words(*overrides)]) == 0
    text = file.read_text()
    rows = read_plan(text, "kubeflow")
    place = [row.step for row in rows].index("Trainer")
    assert rows[place : place + 2] == [
        Row("Trainer", "2 CPUs, 8 GB", "", IMAGE),
        Row("  3 node", "8 CPUs, 8 GB", "1 nvidia.com/gpu", IMAGE),
    ]
    # The step and the pods share the volume; other steps' machines are not in these properties, nor the reverse.
    steps = read_steps(text, "kubeflow")
    found = Settings.of(steps["Trainer"].properties)
    assert found.training_root == "/mnt/work/trainings/digits"
    assert [name for name, step in steps.items() if '"trainjob"' in str(step.properties)] == ["Trainer"]
    other = load("digits", (*overrides, "deploy.nodes.Pusher.cpu=4"), "kubeflow")
    trainer = read_steps(compile_declaration(other, "kubeflow").text, "kubeflow")["Trainer"]
    assert Settings.of(trainer.properties) == found


def write_run(workdir: Path, time: str, model: str, summary: object) -> None:
    (logs := workdir / "digits" / "logs" / time).mkdir(parents=True)
    (logs / "declaration.yaml").write_text(f'name: digits\ntrainer: {{model: "{model}"}}\n')
    (logs / "summary.json").write_text(json.dumps(summary))


def test_the_hours_follow_from_the_pace_of_a_measured_run(tmp_path):
    digits = load("digits", ["trainer.train_steps=720000", "trainer.global_batch_size=100"]).declaration
    assert estimate_hours(digits, str(tmp_path)).startswith("unknown: no finished run in ")
    seconds = {"Trainer": 9.0, "Pusher": 90.0}
    parts = [{"node": node, "state": "ran", "seconds": each} for node, each in seconds.items()]
    for time, model, pace in (("20260101-000000", digits.trainer.model, 10_000.0), ("20260102-000000", "other", 1.0)):
        training = {"examples_per_second": pace}
        write_run(tmp_path, time, model, {"training": training, "examples": {"train": 1000}, "components": parts})
    (tmp_path / "digits" / "logs" / "20260103-000000").mkdir()
    # A later run with a truncated summary is skipped.
    write_run(tmp_path, "20260104-000000", digits.trainer.model, {})
    (tmp_path / "digits" / "logs" / "20260104-000000" / "summary.json").write_text('{"training"')
    line = estimate_hours(digits, str(tmp_path))
    assert line.startswith("about 2 h 00 min of training: 720,000 steps of 100 examples, at the 10,000 examples/s of ")
    assert "20260101-000000; the other steps took 1 min 30 s there; on machines as fast as that run's" in line
    epochs = load("digits", ["trainer.train_epochs=60", "trainer.train_steps=null"]).declaration
    size = epochs.trainer.global_batch_size
    line = estimate_hours(epochs, str(tmp_path))
    assert f"about 6 s of training: {-(-60_000 // size):,} steps of {size} examples" in line


def test_the_hours_are_from_the_run_that_started_last_in_any_folder(tmp_path):
    digits = load("digits", []).declaration
    for time, started, pace in (
        ("20261123-140000", "2026-11-23T14:00:00+14:00", 1.0),
        ("20261122-190000", "2026-11-22T19:00:00-11:00", 10_000.0),
    ):
        summary = {"started": started, "training": {"examples_per_second": pace}}
        write_run(tmp_path, time, digits.trainer.model, summary)
    assert "10,000 examples/s of" in estimate_hours(digits, str(tmp_path))


def followed(outputs: dict[str, dict]) -> int:
    status = JobStatus("SUCCEEDED", True, tasks={"Trainer": "SUCCEEDED", "Resolver": "SUCCEEDED"}, outputs=outputs)
    service = SimpleNamespace(status=lambda job: status)
    return submit._follow(service, Note("vertex", "it", "https://there"), "submitted/it")


def test_a_foreign_pipeline_has_no_table(capfd):
    assert followed({"Train": {}}) == 0
    assert "it: SUCCEEDED" in (stdout := capfd.readouterr().out)
    assert "pushed model" not in stdout


def test_results_that_cannot_be_shown_are_no_failure(capfd, monkeypatch, tmp_path):
    with monkeypatch.context() as there:
        there.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        assert followed({"Trainer": {}}) == 0
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("warning: its results cannot be shown: ")
    assert str(tmp_path / "gone") in warning
