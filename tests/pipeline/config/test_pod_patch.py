"""`deploy.pod_patch`: what Kubernetes' pods have beyond the declaration, on each platform that has pods."""

from __future__ import annotations

import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, OF_TFJOB, OF_TRAINJOB, refused
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.pod_patch import patched
from tfx_estimator.pipeline.platforms.kubeflow.pods import pod_of
from tfx_estimator.pipeline.platforms.training_jobs.manifest import make_manifests, pods_of

OURS = {
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
        "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}], "args": ["x", "y"]}],
        "securityContext": {"runAsUser": 10001, "fsGroup": 10001},
        "tolerations": [{"key": "a"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("{metadata: {labels: {more: x}}}", {"metadata": {"labels": {"team": "vision", "more": "x"}}}),
        ("{spec: {securityContext: {fsGroup: null}}}", {"securityContext": {"runAsUser": 10001}}),
        ("{spec: {securityContext: null}}", {"securityContext": None}),
        ("{spec: {tolerations: [{key: b}]}}", {"tolerations": [{"key": "b"}]}),
        ("{spec: {priorityClassName: high}}", {"priorityClassName": "high"}),
        # A volume has one source, and a variable one value.
        ("{spec: {volumes: [{name: v, emptyDir: {}}]}}", {"volumes": [{"name": "v", "emptyDir": {}}]}),
        (
            "{spec: {containers: [{name: main, args: [z], env: [{name: B, value: b}, {name: A, valueFrom: {}}], "
            "ports: [{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}]}, {name: c}]}}",
            {
                "containers": [
                    {
                        "name": "main",
                        "args": ["z"],
                        "env": [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "b"}],
                        "ports": [{"containerPort": 53, "protocol": each} for each in ("TCP", "UDP")],
                    },
                    {"name": "c"},
                ]
            },
        ),
    ],
)
def test_a_patch_is_merged_as_kubernetes_does(patch, expected):
    found = patched(OURS, [yaml.safe_load(patch)])
    wanted = {"metadata": OURS["metadata"], **expected} if "metadata" in expected else OURS
    spec = {**OURS["spec"], **({} if "metadata" in expected else expected)}
    assert found == {**wanted, "spec": {key: value for key, value in spec.items() if value is not None}}


def test_a_patch_is_for_its_pods_and_a_later_one_goes_first():
    patches = [
        {"spec": {"a": 1, "b": 1}},
        {"pods": ["Trainer", "ps"], "spec": {"b": 2}},
        {"pods": ["ps"], "spec": {"b": 3}},
    ]
    of = {
        names: patched({}, patches, *names)["spec"]["b"]
        for names in ((), ("Pusher",), ("Trainer", "node"), ("Trainer", "ps"))
    }
    assert list(of.values()) == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("override", "instead"),
    [
        ("deploy.nodes.default.node_selector={pool: a}", "{spec: {nodeSelector: {pool: a}}}"),
        ("deploy.nodes.Trainer.node_selector={pool: a}", "[{pods: [Trainer], spec: {nodeSelector: {pool: a}}}]"),
        (
            "deploy.trainjob.replicas.ps.tolerations=[{key: spot, operator: Exists, seconds: 60}]",
            "[{pods: [ps], spec: {tolerations: [{key: spot, operator: Exists, tolerationSeconds: 60}]}}]",
        ),
        (
            "deploy.secrets=[{name: key, path: /secrets/key}]",
            "{spec: {volumes: [{name: secret-0, secret: {secretName: key}}], containers: [{name: main, volumeMounts: "
            "[{name: secret-0, mountPath: /secrets/key, readOnly: true}]}]}}",
        ),
        ("deploy.security_context={fs_group: 5}", "{spec: {securityContext: {fsGroup: 5}}}"),
        (
            "deploy.security_context={standard: none}",
            "{spec: {securityContext: null, containers: [{name: main, securityContext: null}]}}",
        ),
        ("deploy.priorityClassName=high", "{spec: {priorityClassName: high}}"),
        ("deploy.nodes.Trainer.affinity={a: b}", "[{pods: [Trainer], spec: {affinity: {a: b}}}]"),
    ],
)
def test_the_patch_for_a_key_that_is_none_any_more_is_one_that_loads(override, instead):
    (problem,) = refused("", override)
    assert problem.endswith(f"pod_patch: {instead}")
    patches = yaml.safe_load(instead)
    assert load("digits", [f"deploy.pod_patch={instead}"]).declaration.deploy.pod_patch == tuple(
        patches if isinstance(patches, list) else [patches]
    )


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        ("{nodeSelector: {}}", "`nodeSelector`: a pod template has metadata and spec"),
        ("{pods: [trainer], spec: {}}", "pods: there is no trainer: they are TfdsExampleGen,"),
        ("{spec: {containers: [{image: x}]}}", "spec.containers: {image: x} has no `name`"),
        ("{spec: {volumes: {name: x}}}", "spec.volumes: {name: x} is no list"),
        ("[{spec: 3}]", "spec: 3 is no mapping"),
        ("{spec: null}", "spec: null is no mapping"),
        ("{spec: {containers: null}}", "spec.containers: null is no list"),
        ("{spec: {containers: [{name: node}]}}", "has no image, and our own container is called main"),
        ("nowhere.yaml", "nowhere.yaml it cannot be read: No such file"),
    ],
)
def test_a_wrong_patch_is_refused(patch, text):
    (problem,) = refused("", f"deploy.pod_patch={patch}")
    assert text in problem


def test_a_file_is_read_where_the_declaration_lies(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pods.yaml").write_text("spec: {priorityClassName: high}\n")
    (folder / "more.yaml").write_text("deploy: {pod_patch: [pods.yaml, {pods: [ps], spec: {priority: 1}}]}\n")
    monkeypatch.chdir(tmp_path)
    declaration = load("digits+project/more.yaml").declaration
    wanted = ({"spec": {"priorityClassName": "high"}}, {"pods": ["ps"], "spec": {"priority": 1}})
    assert declaration.deploy.pod_patch == wanted
    assert type(declaration).from_json(declaration.to_json()).deploy.pod_patch == wanted
    (folder / "pods.yaml").write_text("spec: {a: [\n")
    with pytest.raises(DeclarationError, match=r"pods.yaml:2"):
        load("digits+project/more.yaml")


PATCH = (
    "deploy.pod_patch=[{metadata: {annotations: {a: b}}, spec: {priorityClassName: high, imagePullSecrets: [{name: "
    "registry}], securityContext: {fsGroup: null}, containers: [{name: main, imagePullPolicy: Always, env: "
    "[{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]}, {name: proxy, image: p}]}}, {pods: [ps, "
    "Pusher], spec: {nodeSelector: {pool: a}}}]"
)


@pytest.mark.parametrize(("target", "whole"), [("tfjob", OF_TFJOB), ("trainjob", OF_TRAINJOB)])
def test_each_pod_of_a_training_job_has_its_patches(target, whole):
    declaration = load("digits", (*whole, PATCH), target).declaration
    made = make_manifests("mine", declaration.deploy, target, declaration.trainer.distribution.resolved(), ["true"])
    specs = {role: spec for role, (_, spec) in pods_of(made).items()}
    assert {role for role, spec in specs.items() if spec.get("nodeSelector") == {"pool": "a"}} == {"ps"}
    for spec in specs.values():
        ours, proxy = spec["containers"]
        assert (ours["name"], proxy["name"]) == ("tensorflow" if target == "tfjob" else "node", "proxy")
        assert {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}} in ours["env"]
        assert (spec["priorityClassName"], ours["imagePullPolicy"]) == ("high", "Always")
        assert "fsGroup" not in spec["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"]
        # A cluster's TF_CONFIG is in our container.
        assert target == "tfjob" or "TF_CONFIG" in {each["name"] for each in ours["env"]}


def test_a_step_of_kubeflow_has_what_kfp_kubernetes_has_and_a_note_of_the_rest():
    loaded = load("digits", (*COMMON, *OF_TARGET["kubeflow"], PATCH), "kubeflow")
    pods = {step: pod_of(loaded.declaration.deploy, step)[0] for step in ("Trainer", "Pusher")}
    assert pods["Pusher"] == {
        "pvcMount": [{"constant": "data", "mountPath": "/mnt/data"}, {"constant": "more", "mountPath": "/mnt/more"}],
        "podMetadata": {"labels": {"team": "vision"}, "annotations": {"a": "b"}},
        "imagePullSecret": [{"secretName": "registry"}],
        "imagePullPolicy": "Always",
        "secretAsEnv": [{"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "KEY"}]}],
        "nodeSelector": {"labels": {"pool": "a"}},
    }
    assert "nodeSelector" not in pods["Trainer"]
    notes = [note for note in loaded.notes if note.startswith("deploy.pod_patch: ")]
    assert [note.split()[1] for note in notes] == [
        "spec.containers.image",
        "spec.containers.name",
        "spec.priorityClassName",
    ]


def test_what_a_step_of_kubeflow_lacks_of_a_mount_is_noted_and_nothing_else_is_lost():
    patch = (
        "deploy.pod_patch={spec: {volumes: [{name: k, secret: {secretName: s, defaultMode: 256}}], containers: [{name: "
        "main, volumeMounts: [{name: k, mountPath: /k/b, subPath: b, readOnly: true}]}]}}"
    )
    loaded = load("digits", (*COMMON, *OF_TARGET["kubeflow"], patch), "kubeflow")
    found = pod_of(loaded.declaration.deploy, "Pusher")[0]
    assert found["secretAsVolume"] == [{"secretName": "s", "mountPath": "/k/b"}]
    notes = [note.split()[1] for note in loaded.notes if note.startswith("deploy.pod_patch: ")]
    assert notes == [f"spec.containers.volumeMounts.{each}" for each in ("defaultMode", "subPath")]
    nothing = load("digits", (*COMMON, *OF_TARGET["kubeflow"], "deploy.pod_patch={spec: {volumes: null}}"), "kubeflow")
    assert "pvcMount" not in pod_of(nothing.declaration.deploy, "Pusher")[0]


def test_a_patch_of_pods_that_a_training_job_lacks_is_noted():
    loaded = load("digits", (*OF_TRAINJOB, "deploy.pod_patch={pods: [worker], spec: {priority: 1}}"), "trainjob")
    assert any("pods: [worker] has no effect: they are Trainer, " in note for note in loaded.notes)


def test_vertex_ai_has_no_pods_to_patch():
    whole = (*COMMON, *OF_TARGET["vertex"])
    assert any("deploy.pod_patch: no effect" in note for note in load("digits", (*whole, PATCH), "vertex").notes)
    assert not any("deploy.pod_patch" in note for note in load("digits", whole, "vertex").notes)
