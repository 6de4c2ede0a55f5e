"""Our TFJobs in a real API server."""

from __future__ import annotations

import copy
import json
from typing import Any, Optional

import kubernetes
import pytest
import yaml

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE
from tests.pipeline.runners.deployed import OF_TFJOB
from tests.waiting import wait_until
from tfx_estimator.pipeline.base.errors import NotStartedError, PipelineError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.follow import RefusedError, UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs.api import ExpiredError, Kube, TakenError
from tfx_estimator.pipeline.platforms.training_jobs.manifest import make_manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

MINE = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs/mine"


def ignore(line: str, is_warning: bool) -> None: ...


@pytest.fixture
def kube(server) -> Kube:
    return Kube()


@pytest.fixture
def manifest(server):
    """A TFJob with all fields, deleted after the test."""
    declaration = load("digits", (*OF_TFJOB, f"deploy.tfjob.namespace={NAMESPACE}"), "tfjob").declaration
    distribution, mounted = declaration.trainer.distribution, {"name": "config"}
    yield make_manifests("mine", declaration.deploy, "tfjob", distribution, ["true"], mounted)[-1]
    if there := Kube().read("mine"):
        Kube().delete("mine", there["metadata"]["uid"])
        server.collect(MINE)


def test_it_is_created_once_watched_and_deleted(kube, manifest, server):
    assert kube.read("mine") is None
    before = kube.jobs()["metadata"]["resourceVersion"]
    created = kube.create(manifest)
    # No field was dropped as unknown.
    assert _holds(created["spec"], manifest["spec"])
    with pytest.raises(TakenError, match="already exists"):
        kube.create(manifest)
    assert kube.read("mine")["metadata"]["uid"] == created["metadata"]["uid"]
    kube.delete("mine", "another-uid")
    assert kube.read("mine")
    kube.delete("mine", created["metadata"]["uid"])
    # It exists as long as its pods.
    assert "deletionTimestamp" in kube.read("mine")["metadata"]
    server.collect(MINE)
    assert kube.read("mine") is None
    kube.delete("mine", created["metadata"]["uid"])
    events = []
    for event, found in kube.watch(kube.jobs, before):
        events.append((event, found["metadata"]["name"]))
        if event == "DELETED":
            break
    assert events == [("ADDED", "mine"), ("MODIFIED", "mine"), ("DELETED", "mine")]


def test_the_schema_refuses(kube, manifest):
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["runPolicy"]["backoffLimit"] = "many"
    with pytest.raises(PipelineError, match="refuses the TFJob"):
        kube.create(wrong)
    del (wrong := copy.deepcopy(manifest))["spec"]["tfReplicaSpecs"]
    with pytest.raises(PipelineError, match="tfReplicaSpecs"):
        kube.create(wrong)


def test_an_expired_version_is_distinguished_from_a_lost_connection(kube, server, monkeypatch):
    with pytest.raises(ExpiredError):
        list(kube.watch(kube.jobs, "1"))
    with pytest.raises(UnavailableError, match="not found"):
        list(kube.log("no-such-pod", ""))
    with pytest.raises(PipelineError, match=r"(?s)no Kubernetes cluster is configured.*--context no-such-context"):
        Kube("no-such-context")


def test_a_missing_namespace_is_named(kube, manifest):
    del manifest["metadata"]["namespace"]
    with pytest.raises(PipelineError, match="has no namespace visoin") as caught:
        Kube(namespace="visoin").create(manifest)
    # Independent of the current context where the user types it.
    assert "`kubectl --context tests get namespaces`" in caught.value.todo


def test_who_refuses_is_named(kube, manifest, server):
    def refused() -> Optional[NotStartedError]:
        try:
            kube.create(manifest)
        except NotStartedError as error:
            return error
        server.ask("DELETE", MINE)  # the server has not seen the quota yet
        return None

    with server.quota(**{"count/tfjobs.kubeflow.org": "0"}):
        error = wait_until(refused, "a refusal", every=0.1)
    assert error
    assert "a quota of the namespace default refuses the TFJob: tfjobs.kubeflow.org" in error.what
    assert "exceeded quota: full" in error.what
    # Admission; nobody here removes a namespace.
    server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "ending"}})
    server.ask("DELETE", "/api/v1/namespaces/ending")
    del manifest["metadata"]["namespace"]
    with pytest.raises(PipelineError, match=r"refuses the TFJob: .* because it is being terminated") as caught:
        Kube(namespace="ending").create(manifest)
    assert (caught.value.exit_code, caught.value.expected) == (6, "a manifest that its admission allows")


@pytest.mark.parametrize(
    ("method", "words", "kind", "todo"),
    [
        ("POST", 'User "me" cannot create resource "tfjobs" in API group', RefusedError, "grant it by a Role"),
        ("GET", "<html>a proxy's page, which tells of a quota</html>", RefusedError, "grant it by a Role"),
        ("POST", "exceeded quota: full, requested: pods=1", NotStartedError, "have it raised"),
        ("POST", "insufficient quota to consume: pods", NotStartedError, "have it raised"),
        ("POST", "failed quota: full: must specify limits.cpu for: tensorflow", PipelineError, "correct deploy"),
        ("POST", 'admission webhook "quota" denied the request: no', PipelineError, "correct deploy"),
        ("POST", 'admission webhook "x" denied the request: User "me" cannot do it', PipelineError, "correct deploy"),
        ("POST", "ValidatingAdmissionPolicy 'quotas' denied request: exceeded quota", PipelineError, "correct deploy"),
    ],
)
def test_who_forbids_is_told_by_kubernetes_own_words(kube, method, words, kind, todo):
    answer = kubernetes.client.ApiException(403, "Forbidden")
    answer.body = json.dumps({"message": f"tfjobs.kubeflow.org is forbidden: {words}"})
    error = kube._error_of(answer, method)
    assert (type(error), todo in error.todo) == (kind, True)


def test_expired_credentials_are_renewed(server, monkeypatch, tmp_path):
    config = yaml.safe_load(server.kubeconfig.read_text())
    token = config["users"][0]["user"].pop("token")
    credential = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
    plugin = {"apiVersion": credential["apiVersion"], "command": "cat", "args": [str(tmp_path / "said")]}
    config["users"][0]["user"]["exec"] = plugin
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    (tmp_path / "said").write_text(json.dumps({**credential, "status": {"token": "one-that-has-ended"}}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    # Also in a pod, whose service account is then not used.
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    kube = Kube()
    with pytest.raises(PipelineError, match="does not accept the credentials"):
        kube.jobs()
    (tmp_path / "said").write_text(json.dumps({**credential, "status": {"token": token}}))
    assert kube.jobs()["items"] == []
    kube.ask()


def _holds(whole: Any, part: Any) -> bool:
    """True if `whole` contains `part`; the server adds defaults."""
    if isinstance(part, dict):
        return all(name in whole and _holds(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_holds, whole, part))
    return whole == part
