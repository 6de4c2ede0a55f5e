"""Makes the manifests of training jobs: pods for chief, workers, parameter servers and evaluator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.base.errors import RETRYABLE
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.pod_patch import MAIN, patched
from tfx_estimator.pipeline.platforms.training_jobs.kinds import (
    BY_NAME,
    JOB_SET,
    NODE,
    PENDING_TIMEOUT,
    PODS,
    TF_JOB,
    TRAIN_JOB,
    Kind,
    Object,
)
from tfx_estimator.pipeline.platforms.volumes import volumes_of

_PORT = 2222
_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
# Longest name of a pod and its host.
_MOST = 63
_DIGITS = 10
# Time for a task to write its checkpoint, or to finish its export, after SIGTERM.
_GRACE_SECONDS = 90
# Exit code of a process that only lost another one: it is restarted, as after all codes from 128 on. TFJobs reserve
# this code for users.
# Source: https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/.
RETRYABLE_CODE = 138
# Where a ConfigMap is mounted.
CONFIG_FOLDER = "/etc/tfx-estimator"
# The variable with a pod's index in its Job, and its source.
_INDEX = "TFX_ESTIMATOR_INDEX"
_INDEX_OF = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Kubeflow Trainer applies the TrainJob's numNodes to the Job with this label.
_ANCESTOR = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
# Of every pod: Kubernetes' Pod Security Standard `restricted`, and the user of the image, see Dockerfile.
# Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/.
USER = 10001
_SECURITY_CONTEXT = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "runAsUser": USER,
    "fsGroup": USER,
    # Otherwise Kubernetes walks through every file of a volume each time that a pod starts.
    "fsGroupChangePolicy": "OnRootMismatch",
}


def kind_of(deploy: DeploySection, section: str) -> Kind:
    """Returns the kind of job that a section of `deploy` declares: `tfjob` or `trainjob`."""
    return TF_JOB if section == TF_JOB.section else BY_NAME[deploy.trainjob.kind]


def job_name(kind: Kind, name: str, key: str = "") -> str:
    """Returns the name of a training job: the pipeline's, if that is short enough and there is no key.

    Args:
        key: Identifies one of several trainings; empty if there is only one.
    """
    most = _MOST - len(kind.suffix)
    if not key and name[:most].rstrip("-") == name:
        return name
    # The digest distinguishes long names with a common prefix.
    suffix = f"-{hashlib.sha256((key or name).encode()).hexdigest()[:_DIGITS]}"
    return name[: most - len(suffix)].rstrip("-") + suffix


def make_manifests(
    name: str,
    deploy: DeploySection,
    section: str,
    distribution: Distribution,
    command: Sequence[str],
    config_map: Optional[Mapping[str, Any]] = None,
) -> list[Object]:
    """Returns the manifest of a training job, preceded by those of the objects that it needs.

    Args:
        section: Of `deploy`, which declares it.
        command: Of each pod's container, which finds its task in TF_CONFIG.
        config_map: Source of a volume that is mounted in CONFIG_FOLDER; None for no volume.
    """
    kind, job = kind_of(deploy, section), getattr(deploy, section)
    limit = distribution.max_restarts if job.backoff_limit is None else job.backoff_limit
    annotations = {PENDING_TIMEOUT: f"{job.pending_timeout:.10g}"}
    pods = distribution.pods
    templates = {role: _template(role, deploy, kind, job, command, config_map) for role in pods}
    metadata = {"name": name, "namespace": job.namespace, "labels": dict(deploy.labels) or None}
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    if kind is TF_JOB:
        metadata["annotations"] = annotations
        return [{**head, "metadata": _without_none(metadata), "spec": _tfjob(job, pods, limit, templates)}]
    metadata["annotations"] = {**annotations, PODS: str(sum(pods.values()))}
    spec = _jobset(name, job, pods, limit, templates)
    if kind is JOB_SET:
        return [{**head, "metadata": _without_none(metadata), "spec": spec}]
    nodes = pods["chief"] + pods.get("worker", 0)
    runtime_spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": spec}}
    # The name has a digest: a changed runtime must not replace that of a running TrainJob.
    digest = hashlib.sha256(json.dumps(runtime_spec, sort_keys=True).encode()).hexdigest()
    runtime_name = f"{name}-{digest[:_DIGITS]}"
    reference = {"apiGroup": TRAIN_JOB.group, "kind": "TrainingRuntime", "name": runtime_name}
    runtime = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": reference["kind"],
        "metadata": _without_none({"name": runtime_name, "namespace": job.namespace}),
        "spec": runtime_spec,
    }
    job_spec = {"runtimeRef": reference, "trainer": {"numNodes": nodes}}
    return [runtime, {**head, "metadata": _without_none(metadata), "spec": job_spec}]


def pods_of(documents: Sequence[Object]) -> dict[str, tuple[int, Object]]:
    """Returns the number of a training job's pods and their specification, by role."""
    (spec,) = (each["spec"] for each in documents if each["kind"] in ("TFJob", "JobSet", "TrainingRuntime"))
    if replicas := spec.get("tfReplicaSpecs"):
        roles = (role for role in _TYPES.values() if role in replicas)
        return {role.lower(): (replicas[role]["replicas"], replicas[role]["template"]["spec"]) for role in roles}
    jobs = spec.get("template", {"spec": spec})["spec"]["replicatedJobs"]
    specs = {each["name"]: each["template"]["spec"] for each in jobs}
    return {role: (each["parallelism"], each["template"]["spec"]) for role, each in specs.items()}


def _tfjob(job: Any, pods: Mapping[str, int], limit: int, templates: Mapping[str, Object]) -> Object:
    """Returns the specification of a TFJob.

    Source: https://github.com/kubeflow/trainer/blob/v1.8.1/manifests/base/crds/kubeflow.org_tfjobs.yaml.
    """
    if job.restart_policy == "Never":
        limit = 0
    elif job.restart_policy == "OnFailure" and limit:
        # The operator counts the restarts of all pods' containers, and one restart of the training restarts each of
        # them; it fails when the limit is reached.
        # Source: https://github.com/kubeflow/trainer/blob/v1.8.1/pkg/core/job.go.
        limit = limit * sum(pods.values()) + 1
    policy = {
        "cleanPodPolicy": job.clean_pod_policy,
        "backoffLimit": limit,
        "activeDeadlineSeconds": job.active_deadline_seconds,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
    }
    replicas = {
        _TYPES[role]: {"replicas": count, "restartPolicy": job.restart_policy, "template": templates[role]}
        for role, count in pods.items()
    }
    return {"runPolicy": _without_none(policy), "tfReplicaSpecs": replicas}


def _jobset(name: str, job: Any, pods: Mapping[str, int], limit: int, templates: Mapping[str, Object]) -> Object:
    """Returns the specification of a JobSet: chief and workers as one Job, each other type as its own.

    It succeeds when chief and workers have, which ends the other pods; it fails with any of its Jobs.

    Source: https://github.com/kubernetes-sigs/jobset/blob/main/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml.
    """
    counts = {NODE: pods["chief"] + pods.get("worker", 0)}
    counts.update({role: count for role, count in pods.items() if role not in ("chief", "worker")})
    # Worker 0 is the chief of a cluster without one.
    types = {"worker" if role == NODE else role: (role, count) for role, count in counts.items()}
    cluster = {
        kind: [f"{name}-{role}-0-{index}.{name}:{_PORT}" for index in range(count)]
        for kind, (role, count) in types.items()
        if kind != "evaluator"
    }
    jobs = []
    for kind, (role, count) in types.items():
        template = templates["chief" if role == NODE else role]
        if sum(counts.values()) > 1:
            # Kubernetes writes the index, a number of JSON, in place of `$(…)`.
            task = json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}, sort_keys=True)
            config = task.replace('"index": 0', f'"index": $({_INDEX})')
            index = {"name": _INDEX, "valueFrom": {"fieldRef": {"fieldPath": _INDEX_OF}}}
            container = main_of(template["spec"])
            container["env"] = [*container["env"], index, {"name": "TF_CONFIG", "value": config}]
        spec = {
            "completionMode": "Indexed",
            "parallelism": count,
            "completions": count,
            # A restart of the training restarts every pod. With a common limit, each pod's end would count for the
            # back-off delay of the next restart.
            "backoffLimitPerIndex": limit,
            "maxFailedIndexes": 0,
            "activeDeadlineSeconds": job.active_deadline_seconds,
            "podFailurePolicy": {
                "rules": [
                    # A drained node or a preemption is no failure.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    # The task's own error; a pod that was killed, or has lost another one, is restarted.
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": NODE, "operator": "In", "values": [*range(1, 128)]},
                    },
                ]
            },
            "template": {**template, "spec": {"restartPolicy": "Never", **template["spec"]}},
        }
        labels = {"metadata": {"labels": dict(_ANCESTOR)}} if role == NODE else {}
        jobs.append({"name": role, "replicas": 1, "template": {**labels, "spec": _without_none(spec)}})
    return {"successPolicy": {"operator": "All", "targetReplicatedJobs": [NODE]}, "replicatedJobs": jobs}


def _template(
    role: str,
    deploy: DeploySection,
    kind: Kind,
    job: Any,
    command: Sequence[str],
    config_map: Optional[Mapping[str, Any]],
) -> Object:
    environment = {"PYTHONUNBUFFERED": "1", **release_variables()}
    # Set for OnFailure, too: the code then marks a pod that has only lost another one.
    if getattr(job, "restart_policy", "") != "Never":
        environment[RETRYABLE] = str(RETRYABLE_CODE)
    accelerator, _ = job.accelerator(role, deploy.nodes.of("Trainer"))
    volumes, mounts = volumes_of(deploy, accelerator)
    if config_map:
        volumes.append({"name": "declaration", "configMap": dict(config_map)})
        mounts.append({"name": "declaration", "mountPath": CONFIG_FOLDER, "readOnly": True})
    port = {"name": "tfjob-port", "containerPort": _PORT} if kind is TF_JOB else {"containerPort": _PORT}
    container = {
        "name": MAIN,
        "image": deploy.image,
        "command": list(command),
        "env": [{"name": each, "value": value} for each, value in sorted({**environment, **deploy.env}.items())],
        "ports": [port],
        "resources": _resources(role, deploy, job) or None,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts or None,
        # Shows the end of the log if the pod had no time to write its error.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = {
        "serviceAccountName": deploy.service_account,
        "securityContext": _SECURITY_CONTEXT,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [_without_none(container)],
        "volumes": volumes or None,
    }
    # A sidecar would outlive the container, and the pod would never end.
    metadata = {"labels": dict(deploy.labels) or None, "annotations": {"sidecar.istio.io/inject": "false"}}
    template = {"metadata": _without_none(metadata), "spec": _without_none(spec)}
    template = patched(template, deploy.pod_patch, "Trainer", job.role(role))
    main_of(template["spec"])["name"] = kind.container
    return template


def main_of(spec: Object) -> Object:
    """Returns our own container of a pod's specification; a patch adds others behind it."""
    return spec["containers"][0]


def _resources(role: str, deploy: DeploySection, job: Any) -> Object:
    node, own = deploy.nodes.of("Trainer"), job.replica(role)
    cpu, memory = own.cpu or node.cpu, own.memory_gb or node.memory_gb
    accelerator, count = job.accelerator(role, node)
    amounts = {
        "cpu": f"{round(cpu * 1000)}m" if cpu else None,
        "memory": f"{round(memory * 1000)}M" if memory else None,
        **({accelerator: str(count or 1)} if accelerator else {}),
    }
    wanted = _without_none(amounts)
    return {"limits": wanted, "requests": dict(wanted)} if wanted else {}


def _without_none(values: Object) -> Object:
    return {key: value for key, value in values.items() if value is not None}
