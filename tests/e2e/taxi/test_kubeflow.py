"""TFX's taxi template, compiled by TFX itself, adapted, and executed like by Kubeflow Pipelines 2."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from tfx.examples import chicago_taxi_pipeline
from tfx.experimental.templates import taxi
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner, KubeflowV2DagRunnerConfig
from tfx.proto import trainer_pb2

from tests.e2e.conftest import states_of
from tests.faults.file_operations import Forks
from tests.root import ROOT
from tfx_estimator.__main__ import main

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

STEPS = ("CsvExampleGen", "StatisticsGen", "SchemaGen", "Transform", "Trainer", "Evaluator", "Pusher")
FINDER = "Evaluator-baseline"
TRIPS = 400


def make_template(folder: Path) -> None:
    """Makes the template as `tfx template copy` does, with the steps that its tutorial uncomments."""
    for name in ("models", "pipeline"):
        shutil.copytree(Path(taxi.__file__).parent / name, folder / name, ignore=shutil.ignore_patterns("*_test.py"))
    for path in folder.rglob("*.py"):
        path.write_text(path.read_text().replace("tfx.experimental.templates.taxi.", ""))
    path = folder / "pipeline" / "pipeline.py"
    path.write_text(re.sub(r"(?m)^( *)# (components\.append)", r"\1\2", path.read_text()))
    data = Path(chicago_taxi_pipeline.__file__).parent / "data" / "simple" / "data.csv"
    (folder / "data").mkdir()
    (folder / "data" / "data.csv").write_text("".join(data.read_text().splitlines(keepends=True)[: TRIPS + 1]))


def adapt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Compiles the template by TFX's runner, like its kubeflow_v2_runner.py, and adapts it; returns the file."""
    monkeypatch.syspath_prepend(folder)
    for name in ("pipeline", "pipeline.configs", "pipeline.pipeline"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    template, configs = (importlib.import_module(f"pipeline.{name}") for name in ("pipeline", "configs"))
    pipeline = template.create_pipeline(
        pipeline_name="taxi",
        pipeline_root="gs://there/taxi",
        data_path=str(folder / "data"),
        preprocessing_fn=configs.PREPROCESSING_FN,
        run_fn=configs.RUN_FN,
        train_args=trainer_pb2.TrainArgs(num_steps=5),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
        eval_accuracy_threshold=0.1,
        serving_model_dir=str(folder / "serving"),
    )
    config = KubeflowV2DagRunnerConfig(default_image="registry.example/taxi")
    KubeflowV2DagRunner(config, str(folder), "taxi.json").run(pipeline)
    assert main(["adapt", str(folder / "taxi.json"), "--output", str(folder / "taxi.yaml")]) == 0
    spec = yaml.safe_load((folder / "taxi.yaml").read_text())
    for executor in spec["deploymentSpec"]["executors"].values():
        # The template's image has its modules.
        path = os.pathsep.join([str(folder), str(ROOT / "src")])
        executor["container"]["env"] = [{"name": "PYTHONPATH", "value": path}]
    (folder / "taxi.yaml").write_text(yaml.safe_dump(spec))
    return spec


def execute(folder: Path, forks: Forks) -> dict[str, Any]:
    """Executes the adapted file; returns the summary."""
    output = forks.run(["execute", str(folder / "taxi.yaml"), "--root", str(folder / "root"), "--json"])
    return json.JSONDecoder().raw_decode(output, output.index("{"))[0]


def blessing(folder: Path, number: int) -> dict[str, Any]:
    """Returns the properties of an execution's blessing."""
    (file,) = (folder / "root" / "taxi").rglob(f"executions/{number:06}-Evaluator.json")
    return json.loads(file.read_text())["outputs"]["blessing"]["metadata"]


def test_the_template_is_executed_to_a_pushed_model_and_compared_with_it(
    tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_template(tmp_path)
    spec = adapt(tmp_path, monkeypatch)
    assert set(spec["root"]["dag"]["tasks"]) == {*STEPS, FINDER}
    results = execute(tmp_path, forks)
    assert states_of(results) == dict.fromkeys([*STEPS, FINDER], "ran")
    assert results["blessed"]
    assert "baseline_model_id" not in blessing(tmp_path, 1)
    pushed = Path(results["pushed"])
    assert pushed.parent == tmp_path / "serving"
    # It serves the pipeline's examples, and is the Trainer's model.
    home = tmp_path / "root" / "taxi" / "artifacts" / "local" / "taxi-1"
    files = [str(path) for path in home.glob("CsvExampleGen_1/examples/Split-*/*.gz")]
    records = [*tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()]
    assert len(records) == TRIPS
    answers = [
        tf.saved_model.load(str(path)).signatures["serving_default"](examples=tf.constant(records[:50]))
        for path in (pushed, home / "Trainer_1" / "model" / "Format-Serving")
    ]
    ours, theirs = (next(iter(each.values())).numpy() for each in answers)
    assert len(ours) == 50
    np.testing.assert_array_equal(ours, theirs)
    # The second model is compared with the first.
    again = execute(tmp_path, forks)
    assert states_of(again) == states_of(results)
    compared = blessing(tmp_path, 2)
    assert compared["baseline_model_id"] == blessing(tmp_path, 1)["current_model_id"] != compared["current_model_id"]
    evaluations = [home.with_name(f"taxi-{number}") / "Evaluator_1" / "evaluation" for number in (1, 2)]
    measured = [(each / "eval_config.json").read_text() for each in evaluations]
    assert [str(home / "Trainer_1" / "model" / "Format-Serving") in each for each in measured] == [True, True]
    assert ["taxi-2/Trainer_1" in each for each in measured] == [False, True]
