"""A step whose image holds another release than the one that compiled it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tfx_estimator
from tests.root import ROOT
from tfx_estimator.pipeline import release

pytestmark = pytest.mark.unit

# How the steps of each target start, where something of this project's is imported.
STARTS = {
    "a step of Vertex AI, or Kubeflow Pipelines 1": ["-c", "import tfx_estimator.components.trainer.executor"],
    "a step of Kubeflow Pipelines 2": [
        *("-m", "tfx_estimator.pipeline.runners.kubeflow_step", "--executor_class_path", "a.B"),
        *("--json_serialized_invocation_args", "{}", "--json_serialized_inputs_spec_args", "{}"),
    ],
    "a step with modules": [
        *("-m", "tfx_estimator.pipeline.runners.entry", "--home", "/nowhere", "--modules", "a.whl", "--sha256", "0"),
        *("--", "true"),
    ],
    "a replica of a custom job": [
        *("-m", "tfx_estimator.components.trainer.custom_job.replica", "--call", "/nowhere", "--roles", "chief"),
    ],
    "a pod of a TFJob": ["-m", "tfx_estimator", "run", "/nowhere.yaml"],
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_each_step_says_both_releases_before_anything_else(start):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), release.COMPILED_BY: "9.8.7"}
    done = subprocess.run([sys.executable, *start], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    here = tfx_estimator.__version__
    assert f"tfx-estimator 9.8.7 has compiled this pipeline, and tfx-estimator {here} is to run it" in done.stderr
    assert f"compile anew with {here}, or name an image with 9.8.7" in done.stderr
    if "import" not in start[-1] and "replica" not in start[1]:
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_the_same_release_goes_on(monkeypatch):
    for name, value in release.variables().items():
        monkeypatch.setenv(name, value)
    release.check_release()
    monkeypatch.delenv(release.COMPILED_BY)
    release.check_release()
