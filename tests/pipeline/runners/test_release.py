"""Steps whose image has another release than the one that compiled the pipeline."""

from __future__ import annotations

import pytest

import tfx_estimator
from tests.pipeline.runners.deployed import COMMON, OF_TARGET, read_steps
from tests.root import run_python
from tfx_estimator.pipeline.base.environment import COMPILED_BY, check_release, release_variables
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.kubeflow.adapt import ENTRY
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TARGETS
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.runners.compiling import compile_declaration

ELSEWHERE = {COMPILED_BY: "9.8.7"}
_PACKAGE = "tfx_estimator.pipeline"
# How steps of each target start, if they import this project.
_KUBEFLOW_V2 = "--executor_class_path a.B --json_serialized_invocation_args {} --json_serialized_inputs_spec_args {}"
STARTS = {
    "a step of Vertex AI": ["-c", "import tfx_estimator.components.trainer.executor"],
    "a step of Kubeflow Pipelines 2": f"-m {_PACKAGE}.platforms.kubeflow.step {_KUBEFLOW_V2}".split(),
    "a step with modules": f"-m {_PACKAGE}.runners.entry --home /no --modules a.whl --sha256 0 -- true".split(),
    "a replica of a custom job": f"-m {_PACKAGE}.platforms.vertex.replica --call /nowhere --roles chief".split(),
    "a pod of a TFJob": ["-m", "tfx_estimator", "run", "/nowhere.yaml"],
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_each_step_reports_both_releases_before_it_starts(start):
    done = run_python(*start, **ELSEWHERE)
    assert done.returncode != 0
    here = release_variables()[COMPILED_BY]
    assert here.startswith(tfx_estimator.__version__)
    assert f"tfx-estimator 9.8.7 has compiled this pipeline, and the image has tfx-estimator {here}" in done.stderr
    assert f"compile it again with {here}, or name an image with 9.8.7" in done.stderr
    if "import" not in start[-1] and "replica" not in start[1]:
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


# Imports the class paths of steps' containers; each may be refused or not.
_IMPORTS = """
import importlib, sys
for path in sys.argv[1:]:
    try:
        importlib.import_module(path.rpartition(".")[0])
    except Exception as error:
        print(path, "refused" if "has compiled this pipeline" in str(error) else error)
    else:
        print(path, "imported")
"""
_TUNE = "tune={max_trials: 2, ranges: {'trainer.optimizer.learning_rate': [0.001, 0.01]}}"
_CHECKS_FIRST = ([*entry.COMMAND], ["python", "-m", ENTRY])


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_each_step_of_this_project_checks_the_release(target):
    more = (_TUNE, *OF_TARGET[target])
    steps = read_steps(compile_declaration(load("digits", (*COMMON, *more), target), target).text, target)
    unseen = {name: step.executor for name, step in steps.items() if step.container["command"] not in _CHECKS_FIRST}
    paths = [*unseen.values()]
    assert paths or target == KUBEFLOW
    done = run_python("-c", _IMPORTS, *paths, **ELSEWHERE, code=0)
    results = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(results) == set(paths)
    assert set(results.values()) <= {"refused", "imported"}
    blind = {name for name, path in unseen.items() if results[path] != "refused"}
    # As documented: TFX's own component.
    assert blind == (set() if target == KUBEFLOW else {"StatisticsGen"})


def test_the_same_release_is_accepted(monkeypatch):
    for name, value in release_variables().items():
        monkeypatch.setenv(name, value)
    check_release()
    monkeypatch.delenv(COMPILED_BY)
    check_release()
