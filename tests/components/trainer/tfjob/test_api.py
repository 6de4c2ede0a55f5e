"""What a real API server says to our TFJobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.components.trainer.tfjob.api_server import NAMESPACE
from tests.pipeline.runners.deployed import OF_TFJOB
from tfx_estimator.components.trainer.tfjob.api import ExpiredError, Kube, LostError, TakenError
from tfx_estimator.components.trainer.tfjob.manifest import make_manifest
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.errors import PipelineError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def kube(server) -> Kube:
    return Kube()


@pytest.fixture
def manifest(server):
    """A TFJob with all that can be said, which is gone after the test."""
    declaration = load("digits", (*OF_TFJOB, f"deploy.tfjob.namespace={NAMESPACE}"), "tfjob").declaration
    yield make_manifest("mine", declaration.deploy, declaration.trainer.distribution, ["true"], {"name": "config"})
    if there := Kube().read("mine"):
        Kube().delete("mine", there["metadata"]["uid"])


def test_it_is_created_once_watched_and_deleted(kube, manifest):
    assert kube.read("mine") is None
    before = kube.jobs()["metadata"]["resourceVersion"]
    created = kube.create(manifest)
    # Nothing of it was dropped as unknown.
    assert _holds(created["spec"], manifest["spec"])
    with pytest.raises(TakenError, match="already exists"):
        kube.create(manifest)
    assert kube.read("mine")["metadata"]["uid"] == created["metadata"]["uid"]
    kube.delete("mine", "another-uid")
    assert kube.read("mine")
    kube.delete("mine", created["metadata"]["uid"])
    assert kube.read("mine") is None
    kube.delete("mine", created["metadata"]["uid"])
    events = []
    for event, found in kube.watch(kube.jobs, before):
        events.append((event, found["metadata"]["name"]))
        if len(events) == 2:
            break
    assert events == [("ADDED", "mine"), ("DELETED", "mine")]


def test_the_schema_refuses(kube, manifest):
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["runPolicy"]["backoffLimit"] = "many"
    with pytest.raises(PipelineError, match="refuses the TFJob"):
        kube.create(wrong)
    del (wrong := copy.deepcopy(manifest))["spec"]["tfReplicaSpecs"]
    with pytest.raises(PipelineError, match="tfReplicaSpecs"):
        kube.create(wrong)


def test_the_schema_does_not_know_what_validate_refuses(kube, manifest):
    specs = manifest["spec"]["tfReplicaSpecs"]
    specs["Boss"] = {**specs.pop("PS"), "restartPolicy": "Sometimes"}
    assert kube.create(manifest)["spec"]["tfReplicaSpecs"]["Boss"]["restartPolicy"] == "Sometimes"


def test_what_is_forgotten_is_told_apart_from_what_is_lost(kube, server, monkeypatch):
    with pytest.raises(ExpiredError):
        list(kube.watch(kube.jobs, "1"))
    with pytest.raises(LostError, match="not found"):
        list(kube.log("no-such-pod"))
    text = server.kubeconfig.read_text().replace(f":{server.port}", ":9")
    (elsewhere := server.folder / "elsewhere").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(elsewhere))
    with pytest.raises(PipelineError, match="does not answer"):
        Kube().check()
    elsewhere.write_text(server.kubeconfig.read_text().replace("a-token", "no-token"))
    with pytest.raises(PipelineError, match="does not know who asks"):
        Kube().check()
    with pytest.raises(PipelineError, match="no Kubernetes cluster is known here"):
        Kube("no-such-context")


def _holds(whole: Any, part: Any) -> bool:
    """Is all of one in the other; the server adds defaults."""
    if isinstance(part, dict):
        return all(name in whole and _holds(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_holds, whole, part))
    return whole == part
