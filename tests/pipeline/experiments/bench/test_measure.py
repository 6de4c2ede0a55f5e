"""The environment of the tasks of a measured training."""

from __future__ import annotations

import os

import pytest

from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, Window
from tfx_estimator.pipeline.experiments.bench.measure import _measuring

SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
OTHERS = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}'


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("environment", [SLURM, {"TF_CONFIG": OTHERS}, {**SLURM, "TF_CONFIG": OTHERS}])
def test_a_measured_training_joins_no_external_cluster(monkeypatch, environment, device):
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
