"""Declarations to deploy, and the steps of compiled pipelines, as dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import TARGETS, VERTEX
from tfx_estimator.pipeline.user_data.embedded_tables import TABLES

IMAGE = "registry.example/tfx-estimator@sha256:" + "0123456789abcdef" * 4
COMMON = (
    f"deploy.image={IMAGE}",
    "deploy.pipeline_root=gs://example-bucket/pipelines",
    "deploy.nodes.default={cpu: 2, retries: 3}",
    "deploy.nodes.StatisticsGen={memory_gb: 3.75}",
    "deploy.env={EXAMPLE: value}",
    "deploy.labels={team: vision}",
)
ACCOUNT = "deploy.service_account=trainer@example-project.iam.gserviceaccount.com"
_VOLUMES = "deploy.volumes=[{claim: data, path: /mnt/data}, {claim: more, path: /mnt/more}]"
# A Secret, and for the training nodes with accelerators, whose taints it tolerates.
_SECRET = (
    "{spec: {volumes: [{name: key, secret: {secretName: key}}], containers: [{name: main, volumeMounts: [{name: key, "
    "mountPath: /secrets/key, readOnly: true}]}]}}"
)
_PLACED = (
    "{pods: [Trainer], spec: {nodeSelector: {cloud.google.com/gke-nodepool: gpus}, tolerations: [{key: nvidia.com/gpu, "
    "operator: Exists, effect: NoSchedule}, {key: spot, value: 'true', effect: NoExecute, tolerationSeconds: 60}]}}"
)
_NO_TOLERATIONS = "{pods: [ps], spec: {tolerations: null}}"
_ON_GPUS = "accelerator: nvidia.com/gpu, accelerators: 2"
OF_TARGET = {
    "vertex": (
        ACCOUNT,
        "deploy.project=example-project",
        "deploy.region=europe-west4",
        "deploy.nodes.Trainer={cpu: 8, memory_gb: 30, accelerator: NVIDIA_TESLA_T4, accelerators: 2}",
    ),
    "kubeflow": (
        "deploy.service_account=trainer",
        _VOLUMES,
        f"deploy.pod_patch=[{_SECRET}, {_PLACED}]",
        f"deploy.nodes.Trainer={{cpu: 8, memory_gb: 30, {_ON_GPUS}}}",
    ),
}
assert tuple(OF_TARGET) == TARGETS
# An embedded table is a file of this machine, which no step of a service sees.
REACHED = [name for name in presets.names() if name not in TABLES]
# The Trainer as a custom job, with machines of each role.
CUSTOM_JOB = (
    "deploy.nodes.Trainer=null",
    "trainer.global_batch_size=66",
    "trainer.distribution={train: {strategy: parameter_server, workers: 3, ps: 2}, evaluator: true}",
    "deploy.vertex={machine: {machine_type: n1-standard-8}, ps: {machine_type: n1-highmem-4, disk_gb: 200}, "
    "worker: {machine_type: n1-standard-16, accelerator: NVIDIA_TESLA_T4}, timeout_seconds: 7200, scheduling: spot, "
    "network: projects/1234/global/networks/inner}",
)
# All options of a TFJob.
OF_TFJOB = (
    f"deploy.image={IMAGE}",
    "deploy.pipeline_root=/mnt/work/runs",
    "deploy.service_account=trainer",
    "deploy.volumes=[{claim: work, path: /mnt/work}, {claim: data, path: /mnt/data, read_only: true}]",
    f"deploy.pod_patch=[{{spec: {{nodeSelector: {{pool: train}}}}}}, {_SECRET}, {_PLACED}, {_NO_TOLERATIONS}]",
    "deploy.nodes.default={cpu: 2, memory_gb: 8}",
    f"deploy.nodes.Trainer={{cpu: 8, {_ON_GPUS}}}",
    "deploy.env={EXAMPLE: value}",
    "deploy.labels={team: vision}",
    "deploy.tfjob={namespace: vision, backoff_limit: 5, clean_pod_policy: All, active_deadline_seconds: 7200}",
    "deploy.tfjob.ttl_seconds_after_finished=86400",
    "deploy.tfjob.replicas={evaluator: {cpu: 1.5, accelerator: nvidia.com/gpu}, ps: {memory_gb: 16}}",
    "trainer.distribution={train: {strategy: parameter_server, workers: 3, ps: 2}, evaluator: true}",
)
# All options of a TrainJob.
OF_TRAINJOB = (
    *(each for each in OF_TFJOB if not each.startswith("deploy.tfjob")),
    "deploy.trainjob={namespace: vision, backoff_limit: 5, active_deadline_seconds: 7200}",
    "deploy.trainjob.replicas={evaluator: {cpu: 1.5, accelerator: nvidia.com/gpu}, ps: {memory_gb: 16}}",
)
# A step of Kubeflow Pipelines that trains in a TrainJob.
OF_STEP_IN_PODS = (
    *COMMON[:2],
    "deploy.service_account=trainer",
    "deploy.volumes=[{claim: work, path: /mnt/work}]",
    "deploy.training_root=/mnt/work/trainings",
    "deploy.trainjob.train=true",
)
# A single chief, with which each preset can be trained.
OF_ONE_POD = OF_TFJOB[:4]
TWO_WORKERS = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 2}"
OF_TWO_PODS = {"tfjob": (*OF_TFJOB[:-2], TWO_WORKERS), "trainjob": (*OF_TRAINJOB[:8], OF_TRAINJOB[-2], TWO_WORKERS)}


def words(*overrides: str) -> list[str]:
    """Returns overrides as command-line arguments."""
    return [word for each in overrides for word in ("--set", each)]


def as_sections(target: str) -> dict[str, Any]:
    """Returns COMMON and OF_TARGET as sections of a declaration."""
    sections: dict[str, Any] = {}
    for each in (*COMMON, *OF_TARGET.get(target, ())):
        path, _, value = each.partition("=")
        place = sections
        *outer, last = path.split(".")
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = yaml.safe_load(value)
    return sections


@dataclass
class Step:
    """A step of a compiled pipeline, for any target.

    Args:
        container: Its container specification in the file.
        executor: Dotted path of its executor.
        inputs: By input key, the producer step and its output key.
        properties: Execution properties of the executor, if none is set at run time.
        upstream: The steps it depends on.
        rest: The other fields of the step in the file.
        values: The same for parameters that are outputs of other steps.
    """

    container: dict[str, Any]
    executor: str
    inputs: dict[str, tuple[str, str]]
    properties: dict[str, Any]
    upstream: set[str]
    rest: dict[str, Any] = field(default_factory=dict)
    values: dict[str, tuple[str, str]] = field(default_factory=dict)


def read_steps(text: str, target: str) -> dict[str, Step]:
    whole = next(yaml.safe_load_all(text))
    spec = whole["pipelineSpec"] if target == VERTEX else whole
    defaults = {name: each["defaultValue"] for name, each in spec["root"]["inputDefinitions"]["parameters"].items()}
    steps = {}
    for name, task in spec["root"]["dag"]["tasks"].items():
        executor = spec["deploymentSpec"]["executors"][f"{name}_executor"]
        if "container" not in executor:
            continue
        inputs, container = task.get("inputs", {}), executor["container"]
        sources = {key: each["taskOutputArtifact"] for key, each in inputs.get("artifacts", {}).items()}
        arguments = container["args"]
        parameters = {**inputs.get("parameters", {})}
        found = {key: parameters.pop(key) for key in [*parameters] if "taskOutputParameter" in parameters[key]}
        values = {key: each["taskOutputParameter"] for key, each in found.items()}
        steps[name] = Step(
            container,
            arguments[arguments.index("--executor_class_path") + 1],
            {key: (each["producerTask"], each["outputArtifactKey"]) for key, each in sources.items()},
            {
                key: defaults[each["componentInputParameter"]]
                if "componentInputParameter" in each
                else each["runtimeValue"]["constant"]
                for key, each in parameters.items()
            },
            set(task.get("dependentTasks", ())),
            {**task, "beam": [each for each in arguments if each.startswith("--runner")]},
            {key: (each["producerTask"], each["outputParameterKey"]) for key, each in values.items()},
        )
    return steps


def same(value: Any) -> Any:
    """Returns a property in comparable form: JSON text is parsed."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def refused(target: str, *overrides: str, source: str = "digits") -> list[str]:
    """Loads a declaration that must be refused.

    Args:
        target: The deployment target; empty for a local run.

    Returns:
        The problems, each with its path, value and reason.
    """
    with pytest.raises(DeclarationError) as caught:
        load(source, overrides, target)
    assert "to do:" in str(caught.value)
    _, *found, then = str(caught.value).split("\n\n")
    assert then.endswith(f" --target {target}" if target else f"{source} --set …")
    assert all("to do:" in problem for problem in found)
    return [" ".join(problem.split()) for problem in found]
