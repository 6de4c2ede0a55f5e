"""`tfx-estimator run`: what it refuses before TensorFlow starts."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("workdir", "text"),
    [("exp[1]/runs", "holds `[`, a wildcard"), ("file", "this is no folder"), ("file/runs", "file is no folder")],
)
def test_a_workdir_that_cannot_hold_a_run_is_refused_at_once(tmp_path, monkeypatch, capsys, workdir, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    loaded = set(sys.modules)
    assert main(["run", "digits", "--workdir", workdir]) == 2
    stderr = capsys.readouterr().err
    assert f"--workdir {workdir}: " in stderr
    assert text in stderr
    assert not {name for name in set(sys.modules) - loaded if name.startswith("tensorflow")}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


CLUSTER = ["--set", "trainer.distribution.train={strategy: multi_worker_mirrored}"]


def _as_worker(monkeypatch, count: int) -> None:
    addresses = [f"localhost:{port}" for port in range(1, count + 1)]
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_workers_that_are_not_declared_are_those_of_the_external_cluster(tmp_path, monkeypatch, capsys):
    _as_worker(monkeypatch, 3)
    batch = ["--set", "trainer.global_batch_size=128"]
    assert main(["run", "digits", *CLUSTER, *batch, "--workdir", str(tmp_path / "runs")]) == 2
    stderr = capsys.readouterr().err
    assert "128 examples do not divide evenly among 3 workers" in stderr
    assert "set it to 126 or 129" in stderr
    assert not (tmp_path / "runs").exists()


def test_a_batch_that_suits_the_external_cluster_is_accepted(monkeypatch):
    from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
    from tfx_estimator.components.trainer.cluster.tf_config import resolve
    from tfx_estimator.pipeline.config import load

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


def test_a_wrong_declaration_is_reported_as_json_too(tmp_path, capsys):
    assert main(["run", "digits", "--set", "trainer.train_steps=0", "--json", "--workdir", str(tmp_path)]) == 2
    output = capsys.readouterr()
    summary = json.loads(output.out)
    assert (summary["state"], summary["exit_code"], summary["error"]["type"]) == ("failed", 2, "DeclarationError")
    assert "trainer.train_steps: 0" in summary["error"]["what"]
    assert "trainer.train_steps: 0" in output.err
