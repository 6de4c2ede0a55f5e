"""The Workflow of Kubeflow Pipelines 1: each step's container command, in order, with ML Metadata behind gRPC."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import read_executions
from tests.e2e.workflow import containers, execute
from tests.examples import copy_example, edit
from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

OVERRIDES = [word for each in (*COMMON, *OF_TARGET[KUBEFLOW]) for word in ("--set", each)]


@pytest.fixture(scope="module")
def workflow(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("workflow") / "digits.yaml"
    assert main(["compile", "digits", "--target", KUBEFLOW, "--output", str(file), *OVERRIDES]) == 0
    return file


def _execute(file: Path, folder: Path, run: str) -> None:
    """Executes the Workflow as Argo would, without a cluster."""
    values = {"pipeline-root": str(folder / "artifacts"), "push_destination": str(folder / "serving")}
    with containers(file, folder, run, values) as found:
        for each in found:
            execute(each, folder)


def test_the_steps_lead_to_a_pushed_model_and_are_cached(workflow, digits_run, tmp_path):
    _execute(workflow, tmp_path, "digits-1")
    first = read_executions(tmp_path)
    assert len(first) == 9
    assert {state for _, state in first} == {"COMPLETE"}
    (pushed,) = (tmp_path / "serving").iterdir()
    accuracy = _accuracy(tmp_path / "artifacts")
    assert accuracy == pytest.approx(digits_run.summary["accuracy"], abs=1e-6)
    _execute(workflow, tmp_path, "digits-2")
    again = [each for each in read_executions(tmp_path) if each[1] == "CACHED"]
    assert len(again) == 8  # all but the resolver
    assert [path.name for path in (tmp_path / "serving").iterdir()] == [pushed.name]


def _accuracy(artifacts: Path) -> float:
    import tensorflow_model_analysis as tfma

    (evaluation,) = (artifacts / "Evaluator" / "evaluation").iterdir()
    metrics: dict[Any, Any] = dict(tfma.load_eval_result(str(evaluation)).slicing_metrics)
    return metrics[()][""][""]["sparse_categorical_accuracy"]["doubleValue"]


# Of an example: a file that the Trainer's module is, or imports; and an edit of it that trains no worse.
OWN = {"own-network": ("layers.py", "Dense(units", "Dense(2 * units"), "module-file": ("my_trainer.py", "0.01", "0.02")}
AFTER_AN_EDIT = {"Trainer", "Evaluator", "Pusher"}


# Eighteen containers, one after the other.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", OWN)
def test_own_modules_travel_and_an_edited_one_trains_anew(tmp_path, name):
    project, service = copy_example(name, tmp_path), tmp_path / "service"
    command = [sys.executable, "-m", "tfx_estimator", "compile", f"{name}.yaml", "--target", KUBEFLOW, *OVERRIDES]
    files = [tmp_path / "before" / "it.yaml", tmp_path / "after" / "it.yaml"]
    for file in files:
        file.parent.mkdir()
        # In a process of its own: modules of these names are other tests', too.
        subprocess.run([*command, "--output", str(file)], cwd=project, check=True, capture_output=True, timeout=120)
        # What `compile` tells to do.
        shutil.copytree(file.parent, service / "modules", ignore=shutil.ignore_patterns("*.yaml"), dirs_exist_ok=True)
        if file is files[0]:
            edit(project / OWN[name][0], *OWN[name][1:])
    # Nothing is imported but what has travelled.
    shutil.rmtree(project)
    _execute(files[0], service, f"{name}-1")
    first = Counter(read_executions(service))
    assert {state for _, state in first} == {"COMPLETE"}
    assert len(list((service / "serving").glob("*/saved_model.pb"))) == 1
    _execute(files[1], service, f"{name}-2")
    again = Counter(read_executions(service)) - first
    kinds = {kind for kind, _ in first}
    anew = AFTER_AN_EDIT | {kind for kind in kinds if "Resolver" in kind}
    assert {kind for kind, state in again if state == "COMPLETE"} == anew
    assert {kind for kind, state in again if state == "CACHED"} == kinds - anew
    assert len(list((service / "serving").glob("*/saved_model.pb"))) == 2
