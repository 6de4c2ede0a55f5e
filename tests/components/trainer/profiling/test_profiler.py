"""A real profile of a real training, on each path, and in a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.components.trainer.conftest import each_path
from tests.folders import write_files
from tfx_estimator.components.trainer.settings import built_in_function

pytestmark = pytest.mark.timeout(240)

PROFILE = {"start_step": 4, "steps": 6}


def _profiled(training, settings, tasks, **trainer) -> dict[str, dict]:
    """The summaries of the tasks of a training of 20 steps."""
    section = {"train_steps": 20, "profile": PROFILE, "log_every_steps": 20, "save_checkpoints_steps": 10}
    made = settings({**section, **trainer})
    functions = built_in_function(made.trainer)
    # Left by the same training before it was stopped, with other steps and tasks.
    for name in ("chief-0", "worker-9"):
        old = Path(training.folder(made, made.trainer.train_steps, **functions), "profile", name)
        declared = '{"declared": {"start_step": 2, "steps": 3}}'
        write_files(old, {"summary.json": declared, "summary.txt": "profile of yesterday"})
    _, run = training.run(made, steps=made.trainer.train_steps, **functions)
    found = {}
    for folder in sorted(Path(run.uri, "profile").iterdir()):
        [profile] = folder.glob("plugins/profile/*/*.xplane.pb")
        if len(tasks) == 1:
            # The checkpoint after the last step is not a step.
            assert b"SaveV2" not in profile.read_bytes()
        found[folder.name] = json.loads((folder / "summary.json").read_text())
        assert f"profile of {folder.name}: " in (folder / "summary.txt").read_text()
    assert sorted(found) == sorted(tasks)
    return found


def _check(summary: dict) -> None:
    assert summary["steps"] == 6
    assert sum(summary["shares"].values()) == pytest.approx(1.0)
    assert summary["shares"]["compute"] > 0
    assert 0 < len(summary["dearest"]) <= 10
    # The convolution and the dense layers, forward and backward; on a busy machine others may come first.
    assert any("MatMul" in each["kind"] or "Conv2D" in each["kind"] for each in summary["dearest"])
    assert "XLA" not in {each["kind"] for each in summary["dearest"]}
    assert summary["advice"]


@each_path("keras")
def test_the_declared_steps_are_profiled(fresh_tasks, training, settings, path):
    _check(_profiled(training, settings, ["chief-0"], path=path)["chief-0"])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_each_task_of_a_cluster_has_its_own(training, settings, path):
    distribution = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}
    found = _profiled(training, settings, ["chief-0", "worker-0"], path=path, distribution=distribution)
    for summary in found.values():
        _check(summary)
        # Each step sends its gradients and waits for the other worker's.
        assert summary["shares"]["communication"] > 0


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_with_parameter_servers_exactly_the_declared_steps_are_profiled(training, settings, path):
    # The profile begins and ends within a stretch of 10 steps.
    distribution = {"train": {"strategy": "parameter_server", "workers": 2, "ps": 1}, "max_restarts": 0}
    declared = {"path": path, "distribution": distribution, "profile": {"start_step": 13, "steps": 4}}
    (summary,) = _profiled(training, settings, ["chief-0"], **declared).values()
    assert summary["steps"] == 4
    assert not summary["shares"]


@pytest.mark.long
@pytest.mark.cluster
def test_with_an_estimators_parameter_servers_each_worker_has_its_own_profile(training, settings):
    distribution = {"train": {"strategy": "parameter_server", "workers": 2, "ps": 1}}
    # Long enough for both workers: one of them may have done the first steps alone.
    found = _profiled(training, settings, ["chief-0", "worker-0"], distribution=distribution, train_steps=400)
    for summary in found.values():
        # The steps count both workers'.
        assert summary["steps"] >= PROFILE["steps"]
        _check({**summary, "steps": PROFILE["steps"]})
        # Weights are pulled, and gradients pushed.
        assert summary["shares"]["communication"] > 0
