"""What the tasks of a measured training are told."""

from __future__ import annotations

import os

import pytest

from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, Window
from tfx_estimator.components.trainer.supervisor.failure import RESUMES
from tfx_estimator.pipeline.base.errors import TaskStalledError
from tfx_estimator.pipeline.experiments.bench.measure import _explained, _measuring
from tfx_estimator.pipeline.experiments.bench.strategies import Contender, Run

pytestmark = pytest.mark.unit

SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
OTHERS = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}'


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("environment", [SLURM, {"TF_CONFIG": OTHERS}, {**SLURM, "TF_CONFIG": OTHERS}])
def test_a_measured_training_joins_no_cluster_of_others(monkeypatch, environment, device):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert resolve(os.environ) is not None
    before, cores = dict(os.environ), os.sched_getaffinity(0)
    window = Window("folder", 1, 2, (min(cores),), trainers=3)
    with _measuring((min(cores),), window, device):
        assert (
            os.environ.get("CUDA_VISIBLE_DEVICES") == {"cpu": "-1", "gpu": before.get("CUDA_VISIBLE_DEVICES")}[device]
        )
        assert resolve(os.environ) is None
        assert Window.of_environment() == Window("folder", 1, 2, [min(cores)], trainers=3)
        assert os.sched_getaffinity(0) == {min(cores)}
    assert dict(os.environ) == before
    assert MEASURE not in before
    assert os.sched_getaffinity(0) == cores


@pytest.mark.parametrize(("own", "told"), [("do this", "do this; or see the"), (f"it; {RESUMES}", "it; or see the")])
def test_what_an_error_says_is_to_be_done_is_kept(own, told):
    with pytest.raises(TaskStalledError) as raised, _explained(Run(Contender("mirrored", 2), 1), "logs"):
        raise TaskStalledError("it is slow", todo=own)
    assert raised.value.todo == f"{told} logs in logs; or leave mirrored:2 out"
