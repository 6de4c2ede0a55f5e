"""The `deploy` section: what a compiled pipeline needs to know of the place where it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.section import Field, Section, number
from tfx_estimator.pipeline.platforms.kubeflow.section import Secret, SecurityContext, Toleration, Volume, placement
from tfx_estimator.pipeline.platforms.registry import BY_NAME, TFJOB, VERTEX
from tfx_estimator.pipeline.platforms.tfjob.section import TfJob
from tfx_estimator.pipeline.platforms.vertex.section import VertexJob

# Keys of a pod's template -> ours. Under nodes and replicas they are right, or near to a right one.
ALIASES = {
    f"deploy.{place}{key}": f"deploy.nodes.{node}.{ours}"
    for place, node in (("", "default"), ("tfjob.", "Trainer"), ("tfjob.replicas.", "Trainer"))
    for key, ours in {
        "tolerations": "tolerations",
        "node_selector": "node_selector",
        "nodeSelector": "node_selector",
    }.items()
} | {"tolerationSeconds": "seconds"}


class Node(Section):
    """What one step of the pipeline may use, and what becomes of it when it fails."""

    cpu: Optional[float] = number(None, 0.001, 1024, "most CPUs; null is nodes.default's, or else the service's own")
    memory_gb: Optional[float] = number(None, 0.001, 16384, "most memory, in 10^9 bytes; null likewise")
    accelerator: Optional[str] = Field(
        None, "`NVIDIA_TESLA_T4` and the like on Vertex AI, `nvidia.com/gpu` and the like on Kubeflow"
    )
    accelerators: Optional[int] = number(None, 1, 64, "how many of them; null is 1")
    node_selector: Optional[dict[str, str]] = Field(
        None, "labels that a node of the Kubernetes cluster must have; null is nodes.default's"
    )
    tolerations: Optional[tuple[Toleration, ...]] = Field(
        None, "taints of the cluster's nodes that are borne; null likewise"
    )
    retries: Optional[int] = number(None, 0, 100, "further tries of a step that failed")


class Nodes(Section):
    """The steps of the pipeline; what one leaves open is that of `default`."""

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

    def of(self, node_id: str) -> Node:
        """Returns what holds for a step."""
        own = getattr(self, node_id, None) or Node()
        declared = {name: value for name in own.__fields__ if (value := getattr(own, name)) is not None}
        return self.default.copy(update=declared)


def gpus(accelerator: Optional[str], count: Optional[int]) -> int:
    """Returns how many GPUs there are of a kind of accelerator; a TPU is none."""
    return (count or 1) if accelerator and "TPU" not in accelerator.upper() else 0


class DeploySection(Section):
    """The place where a compiled pipeline runs, or its training; `run` reads it if `tfjob.train` is said."""

    image: Optional[str] = Field(
        None, "the container of every step, pinned: REGISTRY/NAME@sha256:…, with tfx-estimator in it"
    )
    pipeline_root: Optional[str] = Field(
        None, "where artifacts go: gs://bucket/folder; a runtime parameter of the compiled pipeline"
    )
    training_root: Optional[str] = Field(
        None,
        "where the step Trainer of the target kubeflow and the pods of its TFJob train: a folder in one of volumes; "
        "without tfjob.train trainings lie in PIPELINE_ROOT/NAME/training",
    )
    project: Optional[str] = Field(None, "Google Cloud project of Vertex AI")
    region: Optional[str] = Field(None, "region of Vertex AI: europe-west4")
    service_account: Optional[str] = Field(
        None, "account that the steps run as; null is the project's, or the cluster's, default"
    )
    nodes: Nodes = Nodes()
    volumes: tuple[Volume, ...] = Field((), "of Kubeflow")
    secrets: tuple[Secret, ...] = Field((), "of Kubeflow")
    env: dict[str, str] = Field({}, "environment variables of every step; no secrets: they are in the compiled file")
    labels: dict[str, str] = Field({}, "labels of the job, or of the pods")
    security_context: SecurityContext = Field(SecurityContext(), "of every pod of a TFJob")
    vertex: Optional[VertexJob] = Field(
        None, "trains as a custom job of Vertex AI, on machines of its own; null trains in the step's container"
    )
    tfjob: TfJob = Field(TfJob(), "of the target tfjob, and of a training in a TFJob")

    def step(self, node_id: str) -> Node:
        """Returns what holds for a step: one that only waits for its custom job has no machine of nodes.default's.

        One that only waits for its TFJob has no accelerator, and leaves what nodes.Trainer says to the pods.
        """
        node = self.nodes.of(node_id)
        if node_id == "Trainer" and self.tfjob.train:
            waits = {"retries": node.retries, "accelerator": None, "accelerators": None}
            return self.nodes.default.copy(update=waits)
        if node_id != "Trainer" or self.vertex is None:
            return node
        own = self.nodes.Trainer or Node()
        return own.copy(update={"retries": node.retries})

    @property
    def trains_elsewhere(self) -> bool:
        """Does the Trainer, where it is executed, have others train."""
        return self.tfjob.train

    @property
    def launcher(self) -> Any:
        """Who trains elsewhere than where the Trainer is executed: `check` and `train`; None if nobody does."""
        return BY_NAME[TFJOB].part("launcher") if self.tfjob.train else None

    def machines(self, target: str, distribution: Distribution) -> dict[str, tuple[str, str, int]]:
        """Returns what each process has for itself, by its role: a name, where it is declared, and how many GPUs.

        Nothing where all share what the step Trainer has.
        """
        if target == TFJOB or (self.tfjob.train and BY_NAME[target].trains_in_pods):
            return {
                role: (f"each pod of {role}", f"deploy.tfjob.replicas.{role}", gpus(*self.pod_accelerator(role)))
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
        """Yields steps that have no use for resources there, and why."""
        if target == VERTEX and self.vertex is not None:
            yield "Trainer", "the step only waits for the custom job; deploy.vertex names what trains"
        for name in Nodes.__fields__:
            if target == TFJOB and name not in ("default", "Trainer"):
                yield name, "a TFJob's chief runs every step, with the resources of deploy.tfjob.replicas.chief"

    def accelerated(self, target: str) -> Iterator[tuple[str, Any, Optional[str], str]]:
        """Yields what may have accelerators: its path, it, their kind, and the platform that calls them so."""
        for name, node in self.nodes.sections():
            yield f"deploy.nodes.{name}", node, self.nodes.of(name).accelerator, target
        for name, replica in self.tfjob.replicas.sections():
            yield f"deploy.tfjob.replicas.{name}", replica, replica.accelerator, TFJOB
        if job := self.vertex:
            for name, machine in job.sections():
                yield f"deploy.vertex.{name}", machine, machine.accelerator or job.machine.accelerator, VERTEX

    def pod_accelerator(self, kind: str) -> tuple[Optional[str], Optional[int]]:
        """Returns the accelerator of a TFJob's pods of a kind, and how many each has; None is none, and one."""
        own = getattr(self.tfjob.replicas, kind)
        if own.accelerator is None and kind in ("chief", "worker"):
            own = self.nodes.of("Trainer")
        return own.accelerator, own.accelerators

    def pod_placement(self, kind: str) -> dict[str, Any]:
        """Returns what a TFJob's pods say of their nodes, in Kubernetes' words."""
        own, trainer = getattr(self.tfjob.replicas, kind), self.nodes.of("Trainer")
        selector = trainer.node_selector if own.node_selector is None else own.node_selector
        return placement(selector, trainer.tolerations if own.tolerations is None else own.tolerations)

    def is_mounted(self, path: str, writable: bool = False) -> bool:
        """Tells whether an absolute path lies in a declared volume, one in which steps may write if that is asked."""
        volumes = [volume for volume in self.volumes if not (writable and volume.read_only)]
        return any(_is_below(path, volume.path) for volume in volumes)

    def is_provided(self, path: str) -> bool:
        """Tells whether a path lies in a declared volume, or in a Secret."""
        return self.is_mounted(path) or any(_is_below(path, secret.path) for secret in self.secrets)


def _is_below(path: str, folder: str) -> bool:
    return f"{os.path.normpath(path)}/".startswith(f"{os.path.normpath(folder)}/")
