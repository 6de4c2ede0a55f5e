"""A compiled TFJob that is started as `compile` says: by a real kubectl, in a real API server; the pods are shells."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.pipeline.platforms.tfjob.api_server import NAMESPACE
from tests.pipeline.platforms.tfjob.operator import Operator
from tests.pipeline.platforms.tfjob.test_submitted import SOURCE, WORKS
from tests.pipeline.runners.deployed import words
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms.tfjob.compile import PIPELINE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture
def start(server, tmp_path, monkeypatch, capsys) -> Callable[..., str]:
    """Compiles, and does what `compile` says; returns what kubectl says."""
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")
    # What it learns of a server it keeps below.
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*overrides: str, only_apply: bool = False) -> str:
        monkeypatch.chdir(tmp_path)
        assert main(["compile", *SOURCE, "--output", "job.yaml", "--force", *words(*overrides)]) == 0
        found = re.search(r"start it.*?: (kubectl .*)", capsys.readouterr().out)
        assert found
        command = found[1].split(" && ")[-1] if only_apply else found[1]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_each_time_it_is_started_anew_with_what_is_declared_now(server, start, tmp_path):
    done = tmp_path / "done"
    others = {"name": "others", "labels": {"tfx-estimator/pipeline": "others"}}
    server.ask("POST", CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": others})
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, str(done)]) as operator:
        start()
        first, config_map = job_of(server), config_map_of(server)
        wait_until(lambda: operator.started == ["digits-chief-0"], "the first chief", every=0.1)
        # What is applied again, and nothing else, starts nothing; what is changed would alter the one that goes on.
        start(only_apply=True)
        same = job_of(server)["metadata"]
        assert (same["uid"], same["generation"]) == (first["metadata"]["uid"], first["metadata"]["generation"])
        # One that goes on is ended, with its pods, before the next; also where an earlier version has made it.
        server.patch(f"{JOBS}/digits", {"metadata": {"labels": {PIPELINE: None}}})
        assert 'tfjob.kubeflow.org "digits" deleted' in start()
        assert (second := job_of(server))["metadata"]["uid"] != first["metadata"]["uid"]
        wait_until(lambda: operator.started == ["digits-chief-0"] * 2, "the second chief", every=0.1)
        assert config_map_of(server)["metadata"]["name"] == config_map["metadata"]["name"]
        done.touch()
        wait_until(lambda: "Succeeded" in str(job_of(server).get("status")), "the second TFJob's success", every=0.1)
        done.unlink()
        start("trainer.train_steps=7")
        third, changed = job_of(server), config_map_of(server)
        assert len({each["metadata"]["uid"] for each in (first, second, third)}) == 3
        wait_until(lambda: operator.started == ["digits-chief-0"] * 3, "the third chief", every=0.1)
        assert changed["metadata"]["name"] != config_map["metadata"]["name"]
        assert yaml.safe_load(changed["data"]["declaration.yaml"])["trainer"]["train_steps"] == 7
        spec = third["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
        mounted = next(each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each)
        assert mounted == changed["metadata"]["name"]
        assert server.ask("GET", f"{CONFIG_MAPS}/others")["metadata"]["labels"] == others["labels"]


def job_of(server) -> dict[str, Any]:
    """The only TFJob."""
    (job,) = server.ask("GET", JOBS)["items"]
    return job


def config_map_of(server) -> dict[str, Any]:
    """The only ConfigMap of the pipeline's."""
    listed = server.ask("GET", CONFIG_MAPS)["items"]
    (found,) = [each for each in listed if each["metadata"]["name"].startswith("digits-")]
    return found
