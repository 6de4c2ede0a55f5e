"""The `deploy` section: where a compiled pipeline runs, and with which resources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.pod_patch import as_list, mount_paths, reject
from tfx_estimator.pipeline.config.section import Field, Section, number
from tfx_estimator.pipeline.platforms.kubeflow.section import Volume
from tfx_estimator.pipeline.platforms.registry import BY_NAME, POD_TARGETS, TRAINJOB, VERTEX
from tfx_estimator.pipeline.platforms.training_jobs.section import TfJob, TrainingJob, TrainJob
from tfx_estimator.pipeline.platforms.vertex.section import VertexJob

# The pods of a training, by its platform's names.
ROLES = ("chief", "worker", "node", "ps", "evaluator")


class Node(Section):
    """Resources and retries of one pipeline step."""

    cpu: Optional[float] = number(None, 0.001, 1024, "CPU limit; null is nodes.default's, else the service's default")
    memory_gb: Optional[float] = number(None, 0.001, 16384, "memory limit, in 10^9 bytes; null likewise")
    accelerator: Optional[str] = Field(
        None, "type: `NVIDIA_TESLA_T4`, for example, on Vertex AI; `nvidia.com/gpu`, for example, on Kubeflow"
    )
    accelerators: Optional[int] = number(None, 1, 64, "number of accelerators; null is 1")
    retries: Optional[int] = number(None, 0, 100, "retries of a failed step")


class Nodes(Section):
    """The steps of the pipeline; `default` applies to keys that a step does not set."""

    default: Node = Node()
    TfdsExampleGen: Optional[Node] = None
    ImageSchemaGen: Optional[Node] = None
    StatisticsGen: Optional[Node] = None
    ExampleValidator: Optional[Node] = None
    Transform: Optional[Node] = None
    Tuner: Optional[Node] = None
    Trainer: Optional[Node] = None
    Evaluator: Optional[Node] = None
    Pusher: Optional[Node] = None

    @classmethod
    def steps(cls) -> list[str]:
        """Returns the names of the steps."""
        return [name for name in cls.__fields__ if name != "default"]

    def of(self, node_id: str) -> Node:
        """Returns a step's resources, with the defaults filled in."""
        own = getattr(self, node_id, None) or Node()
        declared = {name: value for name in own.__fields__ if (value := getattr(own, name)) is not None}
        return self.default.copy(update=declared)


def gpus(accelerator: Optional[str], count: Optional[int]) -> int:
    """Returns the number of GPUs; a TPU is none."""
    return (count or 1) if accelerator and "TPU" not in accelerator.upper() else 0


class DeploySection(Section):
    """Where a compiled pipeline, or its training, runs."""

    image: Optional[str] = Field(None, "container image of every step, with tfx-estimator: REGISTRY/NAME@sha256:…")
    pipeline_root: Optional[str] = Field(None, "root of artifacts, in a bucket or volume; a runtime parameter")
    training_root: Optional[str] = Field(
        None,
        "training folder that the Trainer step of the target kubeflow shares with its pods, in one of volumes; "
        "without trainjob.train it is PIPELINE_ROOT/NAME/training",
    )
    project: Optional[str] = Field(None, "Google Cloud project of Vertex AI")
    region: Optional[str] = Field(None, "region of Vertex AI: europe-west4")
    service_account: Optional[str] = Field(None, "service account of the steps; null is the default one")
    nodes: Nodes = Nodes()
    volumes: tuple[Volume, ...] = Field((), "volumes on Kubernetes")
    shared_memory_gb: Optional[float] = number(
        None, 0.001, 16384, "size of /dev/shm on Kubernetes, of the memory limit; null is all of it with accelerators"
    )
    env: dict[str, str] = Field({}, "environment variables of every step; no secrets: they are in the compiled file")
    labels: dict[str, str] = Field({}, "labels of the job, or of the pods")
    pod_patch: tuple[dict[str, Any], ...] = Field(
        (),
        "pod templates as Kubernetes takes them, or files with such, merged into our own: metadata, spec, and in "
        "`pods` the steps or roles of pods that one is for, Trainer for all that train; our container is called main",
        expand=as_list,
        check=lambda patches: reject(patches, [*Nodes.steps(), *ROLES]),
        schema={"items": {"type": ["object", "string"]}},
        short_form={"type": ["object", "string"]},
    )
    vertex: Optional[VertexJob] = Field(
        None, "trains as a custom job of Vertex AI, on machines of its own; null trains in the step's container"
    )
    trainjob: TrainJob = Field(TrainJob(), "for the target trainjob, and for a step that trains in a TrainJob")
    tfjob: TfJob = Field(TfJob(), "for the target tfjob")

    def step(self, node_id: str) -> Node:
        """Returns a step's resources.

        A Trainer step that only waits for its custom job uses none of nodes.default's. One that only waits for its
        training job uses no accelerator; nodes.Trainer then applies to the pods.
        """
        node = self.nodes.of(node_id)
        if node_id == "Trainer" and self.trainjob.train:
            waits = {"retries": node.retries, "accelerator": None, "accelerators": None}
            return self.nodes.default.copy(update=waits)
        if node_id != "Trainer" or self.vertex is None:
            return node
        own = self.nodes.Trainer or Node()
        return own.copy(update={"retries": node.retries})

    def machines(self, target: str, distribution: Distribution) -> dict[str, tuple[str, str, int]]:
        """Returns the machine of each role: its name, the path where it is declared, and its number of GPUs.

        Empty if all processes share the machine of the Trainer step.
        """
        in_pods = self.trainjob.train and BY_NAME[target].trains_in_pods
        if key := target if target in POD_TARGETS else TRAINJOB if in_pods else "":
            job = getattr(self, key)
            path = f"deploy.{key}.replicas."
            return {
                role: (f"each pod of {role}", f"{path}{job.role(role)}", gpus(*self.pod_accelerator(role, job)))
                for role in distribution.pods
            }
        if target != VERTEX or self.vertex is None:
            return {}
        found = {}
        for role, (_, machine) in self.vertex.machines(distribution).items():
            path = f"deploy.vertex.{role if getattr(self.vertex, role) else 'machine'}"
            found[role] = (f"each {role} of the custom job", path, gpus(machine.accelerator, machine.accelerators))
        return found

    def idle_steps(self, target: str) -> Iterator[tuple[str, str]]:
        """Yields steps whose resources have no effect on the target, and why."""
        if target == VERTEX and self.vertex is not None:
            yield "Trainer", "the step only waits for the custom job; set the resources in deploy.vertex"
        for name in Nodes.steps():
            if target in POD_TARGETS and name != "Trainer":
                chief = f"deploy.{target}.replicas.{getattr(self, target).role('chief')}"
                yield name, f"the chief runs every step, with the resources of {chief}"

    def accelerated(self, target: str) -> Iterator[tuple[str, Any, Optional[str], str]]:
        """Yields what may have accelerators: its path, its section, their type, and the platform whose type it is."""
        for name, node in self.nodes.sections():
            yield f"deploy.nodes.{name}", node, self.nodes.of(name).accelerator, target
        for key in POD_TARGETS:
            for name, replica in getattr(self, key).replicas.sections():
                yield f"deploy.{key}.replicas.{name}", replica, replica.accelerator, key
        if job := self.vertex:
            for name, machine in job.sections():
                yield f"deploy.vertex.{name}", machine, machine.accelerator or job.machine.accelerator, VERTEX

    def pod_accelerator(self, process: str, job: TrainingJob) -> tuple[Optional[str], Optional[int]]:
        """Returns the accelerator of a role's pods, None for none, and the number per pod, None for one."""
        own, trainer = job.replica(process), self.nodes.of("Trainer")
        if own.accelerator is None and process in ("chief", "worker"):
            return trainer.accelerator, trainer.accelerators
        return own.accelerator, own.accelerators

    def shared_memory(self, accelerator: Optional[str]) -> Optional[dict[str, str]]:
        """Returns the emptyDir of a pod's /dev/shm; None for the runtime's own of 64 MB, too small for several GPUs."""
        if self.is_provided("/dev/shm") or not (accelerator or self.shared_memory_gb):
            return None
        size = {"sizeLimit": f"{round(self.shared_memory_gb * 1000)}M"} if self.shared_memory_gb else {}
        return {"medium": "Memory", **size}

    def is_mounted(self, path: str, writable: bool = False) -> bool:
        """Returns whether an absolute path is in a declared volume, with `writable` in one that is not read-only."""
        volumes = [volume for volume in self.volumes if not (writable and volume.read_only)]
        return any(_is_below(path, volume.path) for volume in volumes)

    def is_provided(self, path: str) -> bool:
        """Returns whether a path is in a declared volume, or in one of pod_patch."""
        return self.is_mounted(path) or any(_is_below(path, each) for each in mount_paths(self.pod_patch))


def _is_below(path: str, folder: str) -> bool:
    return f"{os.path.normpath(path)}/".startswith(f"{os.path.normpath(folder)}/")
