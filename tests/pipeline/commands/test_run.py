"""`tfx-estimator run`: what it refuses before TensorFlow starts."""

from __future__ import annotations

import json
import os

import pytest

from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load

CLUSTER = ["--set", "trainer.distribution.train={strategy: multi_worker_mirrored}"]


def _as_worker(monkeypatch, count: int) -> None:
    addresses = [f"localhost:{port}" for port in range(1, count + 1)]
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_workers_that_are_not_declared_are_those_of_the_external_cluster(tmp_path, monkeypatch, cli):
    _as_worker(monkeypatch, 3)
    batch = ["--set", "trainer.global_batch_size=128"]
    stderr = cli("run", "digits", *CLUSTER, *batch, "--workdir", str(tmp_path / "runs"), code=2).err
    assert "128 examples do not divide evenly among 3 workers" in stderr
    assert "set it to 126 or 129" in stderr
    assert not (tmp_path / "runs").exists()


def test_a_batch_that_suits_the_external_cluster_is_accepted(monkeypatch):
    _as_worker(monkeypatch, 3)
    # Odd: the default of two workers could not share it.
    loaded = load("digits", [*CLUSTER[1:], "trainer.global_batch_size=129"])
    resolved = resolve_distribution(loaded.declaration.trainer.distribution, resolve(os.environ))
    assert resolved.train.worker_count == 3
    loaded.check_cluster(resolved)
    with pytest.raises(DeclarationError, match="129 examples do not divide evenly among 2 workers"):
        loaded.check_cluster(resolve_distribution(loaded.declaration.trainer.distribution, None))
    loaded = load("digits", [*CLUSTER[1:], "trainer.global_batch_size=6", "trainer.gradient_accumulation=3"])
    with pytest.raises(DeclarationError, match="each replica has 2 of the 6 examples of a step, fewer than 3 parts"):
        loaded.check_cluster(resolved)


def test_a_wrong_declaration_is_reported_as_json_too(tmp_path, cli):
    output = cli("run", "digits", "--set", "trainer.train_steps=0", "--json", "--workdir", str(tmp_path), code=2)
    summary = json.loads(output.out)
    assert (summary["state"], summary["exit_code"], summary["error"]["type"]) == ("failed", 2, "DeclarationError")
    assert "trainer.train_steps: 0" in summary["error"]["what"]
    assert "trainer.train_steps: 0" in output.err
