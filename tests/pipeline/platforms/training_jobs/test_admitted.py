"""Pods of training jobs in a real API server that admits only `restricted` pods."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, api_server
from tests.pipeline.runners.deployed import OF_TFJOB, OF_TRAINJOB, words
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms.training_jobs import manifest

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(240)]

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# The predecessor of Pod Security Admission, which this server lacks; it would fill in fields that a pod leaves out,
# except the seccomp profile.
# Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/.
RESTRICTED = {
    "apiVersion": "policy/v1beta1",
    "kind": "PodSecurityPolicy",
    "metadata": {
        "name": "restricted",
        "annotations": {"seccomp.security.alpha.kubernetes.io/allowedProfileNames": "runtime/default"},
    },
    "spec": {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "requiredDropCapabilities": ["ALL"],
        "volumes": ["configMap", "emptyDir", "projected", "secret", "downwardAPI", "persistentVolumeClaim"],
        "runAsUser": {"rule": "MustRunAsNonRoot"},
        "seLinux": {"rule": "RunAsAny"},
        "supplementalGroups": {"rule": "RunAsAny"},
        "fsGroup": {"rule": "MustRunAs", "ranges": [{"min": 1, "max": 65535}]},
    },
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    with api_server(tmp_path_factory.mktemp("kubernetes"), "PodSecurityPolicy") as server:
        server.ask("POST", "/apis/policy/v1beta1/podsecuritypolicies", RESTRICTED)
        yield server


def pods_of(tmp_path, target: str) -> list[dict[str, Any]]:
    """Compiles for a target; returns a pod of each kind with the fields that decide its admission."""
    file = tmp_path / "compiled.yaml"
    declared = {"tfjob": OF_TFJOB, "trainjob": OF_TRAINJOB}[target]
    assert main(["compile", "digits", "--target", target, "--output", str(file), *words(*declared)]) == 0
    keys = ("securityContext", "containers", "volumes")
    specs = (spec for _, spec in manifest.pods_of([*yaml.safe_load_all(file.read_text())]).values())
    return [{key: spec[key] for key in keys if key in spec} for spec in specs]


@pytest.mark.parametrize("target", ["tfjob", "trainjob"])
def test_every_pod_is_admitted_unchanged(strict, tmp_path, target):
    pods = pods_of(tmp_path, target)
    assert pods
    for spec in pods:
        wanted = {**spec, "automountServiceAccountToken": False}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "tried-"}, "spec": wanted}
        made = strict.ask("POST", PODS, pod)["spec"]
        # No field was filled in or dropped as unknown.
        assert made["securityContext"] == spec["securityContext"]
        assert made["containers"][0]["securityContext"] == spec["containers"][0]["securityContext"]
