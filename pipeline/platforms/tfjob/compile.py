"""Makes TFJobs: pods for chief, workers, parameter servers and evaluator, as `trainer.distribution` says."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.base.errors import RETRYABLE
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.platforms.kubernetes import kubectl
from tfx_estimator.pipeline.platforms.plan import Row, row_of
from tfx_estimator.pipeline.platforms.tfjob.rules import DECLARATION, MODULES, contents
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

GROUP, VERSION, KIND, PLURAL = "kubeflow.org", "v1", "TFJob", "tfjobs"
# Names that the training operator looks for.
CONTAINER = "tensorflow"
_PORT = {"name": "tfjob-port", "containerPort": 2222}
_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
# A pod's name, and its host's, is the job's with `-evaluator-0`, and at most 63 characters.
_MOST = 63 - len("-evaluator-0")
_DIGITS = 10
# Time for the checkpoint that a task writes when it is ended, or for an export that it has begun.
_GRACE_SECONDS = 90
# The exit code of a process that failed for no reason of its own: the operator's policy ExitCode restarts it. It
# restarts after all codes from 128 on; this one is reserved for users.
# Source: https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/.
RETRYABLE_CODE = 138
# A label of all that a compiled pipeline has in a cluster; its value is the TFJob's name.
PIPELINE = "tfx-estimator/pipeline"
# An annotation of a compiled TFJob: how many seconds pods may take to start.
PENDING_TIMEOUT = "tfx-estimator/pending-timeout"
# Where a ConfigMap is mounted.
CONFIG_FOLDER = "/etc/tfx-estimator"


def job_name(name: str, key: str = "") -> str:
    """Returns the name of a TFJob: the pipeline's, where that fits and there is but one.

    Args:
        key: What tells one training from another; empty if there is but one.
    """
    if not key and name[:_MOST].rstrip("-") == name:
        return name
    # The digest keeps two long names apart that begin alike.
    suffix = f"-{hashlib.sha256((key or name).encode()).hexdigest()[:_DIGITS]}"
    return name[: _MOST - len(suffix)].rstrip("-") + suffix


def compile_declaration(declaration: Declaration, modules: Optional[Packed]) -> list[dict[str, Any]]:
    """Compiles a declaration.

    Each pod runs it as a task of a cluster that is already there: the chief the pipeline, the others its training. The
    declaration and the user's modules travel in a ConfigMap.

    Args:
        modules: They are not too large, as was checked when the declaration was loaded.
    """
    deploy = declaration.deploy or DeploySection()
    data, binary = contents(declaration, modules)
    command = [
        *("tfx-estimator", "run", f"{CONFIG_FOLDER}/{DECLARATION}"),
        *("--workdir", deploy.pipeline_root or ""),
    ]
    if modules:
        command = [*entry.COMMAND, *entry.arguments(CONFIG_FOLDER, modules, command)]
    # Another declaration is another ConfigMap: pods that start again must not see what is not theirs.
    digest = hashlib.sha256(json.dumps([data, binary], sort_keys=True).encode()).hexdigest()
    name = job_name(declaration.name)
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-{digest[:10]}", "labels": {PIPELINE: name}},
        "data": data,
    }
    if deploy.tfjob.namespace:
        made["metadata"]["namespace"] = deploy.tfjob.namespace
    if binary:
        made["binaryData"] = binary
    paths = {key: key for key in (*data, *binary)}
    if modules:
        paths[MODULES] = f"{entry.FOLDER}/{modules.name}"
    mounted = {
        "name": made["metadata"]["name"],
        "items": [{"key": key, "path": path} for key, path in sorted(paths.items())],
    }
    job = make_manifest(name, deploy, declaration.trainer.distribution, command, mounted)
    # By this label a new start finds what an earlier declaration of this name has left.
    job["metadata"].setdefault("labels", {})[PIPELINE] = name
    # Read by `submit --follow`.
    job["metadata"]["annotations"] = {PENDING_TIMEOUT: f"{deploy.tfjob.pending_timeout:.10g}"}
    return [made, job]


def instructions(declaration: Declaration, target: str, file: Path) -> Iterator[str]:
    """Yields what the user does with the compiled file."""
    job, name = (declaration.deploy or DeploySection()).tfjob, job_name(declaration.name)
    # A TFJob that is there, also an ended one, does not start by being applied again. In the foreground: the next one's
    # pods have the names of those that go.
    # By its name: that of an earlier version has no label.
    delete = f"delete tfjob {name} --ignore-not-found --cascade=foreground --wait"
    delete_map = f"delete configmap --selector {PIPELINE}={name}"
    apply = f"apply --filename {shlex.quote(str(file))}"
    deletes = [kubectl(each, job.context, job.namespace) for each in (delete, delete_map)]
    start = " && ".join([*deletes, kubectl(apply, job.context)])
    yield f"start it, in place of an earlier one: {start}"
    yield f"see it run: {kubectl(f'logs --follow {name}-chief-0', job.context, job.namespace)}"
    yield "note: its chief runs every step, with the resources of deploy.tfjob.replicas.chief"


def rows(documents: list[dict[str, Any]]) -> Iterator[Row]:
    """Yields what the pods will run on; the first document is the ConfigMap."""
    return rows_of_pods(documents[1])


def rows_of_pods(job: dict[str, Any]) -> Iterator[Row]:
    """Yields what the pods of a TFJob will run on."""
    replicas = job["spec"]["tfReplicaSpecs"]
    for kind in filter(replicas.get, _TYPES.values()):
        (container,) = replicas[kind]["template"]["spec"]["containers"]
        yield row_of(f"{replicas[kind]['replicas']} {kind.lower()}", container)


def make_manifest(
    name: str,
    deploy: DeploySection,
    distribution: Distribution,
    command: Sequence[str],
    config_map: Optional[Mapping[str, Any]] = None,
) -> dict[str, Any]:
    """Makes the manifest of a TFJob.

    Args:
        command: Of each pod's container; TF_CONFIG tells it its place.
        config_map: As the source of a volume, mounted in CONFIG_FOLDER; None is none.

    Returns:
        The manifest, as of `kubeflow.org/v1`.

    Source: https://github.com/kubeflow/trainer/blob/v1.8.1/manifests/base/crds/kubeflow.org_tfjobs.yaml.
    """
    job = deploy.tfjob
    policy = {
        "cleanPodPolicy": job.clean_pod_policy,
        "backoffLimit": _backoff_limit(deploy, distribution),
        "activeDeadlineSeconds": job.active_deadline_seconds,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
    }
    metadata = {
        "name": name,
        "namespace": job.namespace,
        "labels": dict(deploy.labels) or None,
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": _without_none(metadata),
        "spec": {
            "runPolicy": _without_none(policy),
            "tfReplicaSpecs": {
                _TYPES[kind]: {
                    "replicas": count,
                    "restartPolicy": job.restart_policy,
                    "template": _template(kind, deploy, command, config_map),
                }
                for kind, count in distribution.pods.items()
            },
        },
    }


def _backoff_limit(deploy: DeploySection, distribution: Distribution) -> int:
    """Returns after how many restarts a TFJob has failed; what follows from one failure is one of them.

    With the policy OnFailure the operator counts the containers of all pods, and fails when the limit is reached.

    Source: https://github.com/kubeflow/trainer/blob/v1.8.1/pkg/core/job.go.
    """
    job = deploy.tfjob
    if job.restart_policy == "Never":
        return 0
    limit = distribution.max_restarts if job.backoff_limit is None else job.backoff_limit
    if job.restart_policy != "OnFailure" or limit == 0:
        return limit
    # Each restart is one of every pod's container.
    return limit * sum(distribution.pods.values()) + 1


def _template(
    kind: str, deploy: DeploySection, command: Sequence[str], config_map: Optional[Mapping[str, Any]]
) -> dict[str, Any]:
    environment = {"PYTHONUNBUFFERED": "1", **release_variables()}
    # Also if pods are restarted after every code: this one shows which pod has only lost another.
    if deploy.tfjob.restart_policy != "Never":
        environment[RETRYABLE] = str(RETRYABLE_CODE)
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def mount(name: str, path: str, read_only: bool, source: dict[str, Any]) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})

    for index, volume in enumerate(deploy.volumes):
        # The claim is read-only, too, so that Kubernetes does not change the group of the files.
        claim = {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}
        mount(f"volume-{index}", volume.path, volume.read_only, {"persistentVolumeClaim": claim})
    for index, secret in enumerate(deploy.secrets):
        mount(f"secret-{index}", secret.path, True, {"secret": {"secretName": secret.name}})
    if config_map:
        mount("declaration", CONFIG_FOLDER, True, {"configMap": dict(config_map)})
    container = {
        "name": CONTAINER,
        "image": deploy.image,
        "command": list(command),
        "env": [{"name": each, "value": value} for each, value in sorted({**environment, **deploy.env}.items())],
        "ports": [dict(_PORT)],
        "resources": _resources(kind, deploy) or None,
        "securityContext": deploy.security_context.of_container() or None,
        "volumeMounts": mounts or None,
        # Kubernetes then shows the end of the log if the pod had no time to write its error.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = {
        "serviceAccountName": deploy.service_account,
        "securityContext": deploy.security_context.of_pod() or None,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **deploy.pod_placement(kind),
        "containers": [_without_none(container)],
        "volumes": volumes or None,
    }
    # A sidecar would outlive the container, and the pod would never end.
    metadata = {"labels": dict(deploy.labels) or None, "annotations": {"sidecar.istio.io/inject": "false"}}
    return {"metadata": _without_none(metadata), "spec": _without_none(spec)}


def _resources(kind: str, deploy: DeploySection) -> dict[str, Any]:
    node, own = deploy.nodes.of("Trainer"), getattr(deploy.tfjob.replicas, kind)
    cpu, memory = own.cpu or node.cpu, own.memory_gb or node.memory_gb
    accelerator, count = deploy.pod_accelerator(kind)
    amounts = {
        "cpu": f"{round(cpu * 1000)}m" if cpu else None,
        "memory": f"{round(memory * 1000)}M" if memory else None,
        **({accelerator: str(count or 1)} if accelerator else {}),
    }
    wanted = _without_none(amounts)
    return {"limits": wanted, "requests": dict(wanted)} if wanted else {}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
