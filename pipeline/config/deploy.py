"""The `deploy` section: where a compiled pipeline runs, and with which resources."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.config.pod_patch import as_list, reject
from tfx_estimator.pipeline.config.section import Field, Section, number
from tfx_estimator.pipeline.platforms import registry

# A machine's name, the path where it is declared, and its number of GPUs.
Machine = tuple[str, str, int]
# What may have accelerators: its path, its section, their type, and the platform whose type it is.
Accelerated = tuple[str, Any, Optional[str], str]
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


class Volume(Section):
    """A persistent volume claim, mounted in every step."""

    claim: str = Field(..., description="name of the PersistentVolumeClaim")
    path: str = Field(..., description="mount path")
    read_only: bool = Field(default=False, description="whether it is mounted read-only")


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

    if TYPE_CHECKING:
        # The sections of the platforms: see below.
        def __getattr__(self, name: str) -> Any: ...

    def shared_memory(self, accelerator: Optional[str]) -> Optional[dict[str, str]]:
        """Returns the emptyDir of a pod's /dev/shm; None for the runtime's own of 64 MB, too small for several GPUs."""
        if self.is_mounted("/dev/shm") or not (accelerator or self.shared_memory_gb):
            return None
        size = {"sizeLimit": f"{round(self.shared_memory_gb * 1000)}M"} if self.shared_memory_gb else {}
        return {"medium": "Memory", **size}

    def is_mounted(self, path: str, writable: bool = False) -> bool:
        """Returns whether an absolute path is in a declared volume, with `writable` in one that is not read-only."""
        volumes = [volume for volume in self.volumes if not (writable and volume.read_only)]
        return any(_is_below(path, volume.path) for volume in volumes)

    def is_provided(self, path: str) -> bool:
        """Returns whether a path is in a declared volume, or in one of pod_patch."""
        containers = [each for patch in self.pod_patch for each in (patch.get("spec") or {}).get("containers") or ()]
        mounts = [mount for each in containers for mount in each.get("volumeMounts") or ()]
        return self.is_mounted(path) or any(_is_below(path, each["mountPath"]) for each in mounts)


for _name, (_kind, _key) in registry.sections().items():
    DeploySection.take(_name, _kind, _key)


def _is_below(path: str, folder: str) -> bool:
    return f"{os.path.normpath(path)}/".startswith(f"{os.path.normpath(folder)}/")
