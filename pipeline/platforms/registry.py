"""The platforms that a pipeline can be compiled for, and their capabilities.

Standard library only, because the command line's help imports it; a platform's own modules are imported on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

VERTEX, KUBEFLOW, TRAINJOB, TFJOB = "vertex", "kubeflow", "trainjob", "tfjob"
# Targets whose training job runs the pipeline in its chief; the section of `deploy` has the target's name.
POD_TARGETS = (TRAINJOB, TFJOB)


@dataclass(frozen=True)
class Platform:
    """A platform that a pipeline is compiled for.

    Args:
        name: The target, on the command line.
        title: Its display name.
        file: The compiled file's name, as a format of the pipeline's name.
        runs_steps: Whether it takes a PipelineSpec and runs each step in a container, without TFX's drivers; else one
            process runs all steps.
        resolver: Which resolvers it runs: ours, TFX's stock ones only, or none.
        trains_in_pods: Whether `deploy.trainjob.train` applies there.
        options: Options of `submit` that it takes, with the declaration's key that each overrides, if any.
        jobs: Regular expression of a job's name that needs no note; its groups are fields of the note.
        engine: The engine's name in TFX's CLI; empty if it has none.
        clusters: Where each process of a cluster has its own machine.
        has_volumes: Whether steps may mount volumes.
        stores: Schemes of the object stores that its steps read and write.
        keeps_in_volumes: Whether the pipeline's folder may lie in a volume, which its pods share.
        accelerator: Regular expression of an accelerator's name, and an example.
        hides_results: Whether it does not report the outputs of steps.
    """

    name: str = ""
    title: str = "this machine"
    file: str = ""
    runs_steps: bool = False
    resolver: Literal["own", "stock", ""] = "own"
    trains_in_pods: bool = False
    options: dict[str, str] = field(default_factory=dict)
    jobs: str = ""
    engine: str = ""
    clusters: str = "the targets trainjob and tfjob have a pod for each"
    hides_results: bool = False
    has_volumes: bool = True
    stores: tuple[str, ...] = ("gs://", "s3://")
    keeps_in_volumes: bool = False
    accelerator: tuple[str, str] = (r"[a-z0-9.-]+/[A-Za-z0-9._-]+", "nvidia.com/gpu")


# Without a target.
HERE = Platform()
_OF_CLUSTER = {"context": "", "namespace": ""}
_OF_SERVICE = {**_OF_CLUSTER, "endpoint": "", "experiment": ""}
_PLATFORMS = (
    Platform(
        VERTEX,
        "Vertex AI Pipelines",
        "{}.json",
        runs_steps=True,
        # It supports no other resolver strategies.
        resolver="stock",
        jobs=r"projects/(?P<project>[^/\s]+)/locations/(?P<region>[^/\s]+)/pipelineJobs/[^/\s]+",
        engine="vertex",
        clusters="deploy.vertex has a machine for each",
        has_volumes=False,
        stores=("gs://",),
        accelerator=(r"[A-Z][A-Z0-9_]+", "NVIDIA_TESLA_T4"),
    ),
    Platform(
        KUBEFLOW,
        "Kubeflow Pipelines 2",
        "{}-kubeflow.yaml",
        runs_steps=True,
        trains_in_pods=True,
        # Its backend does not implement resolvers.
        resolver="",
        options=_OF_SERVICE,
        hides_results=True,
    ),
    *(
        Platform(
            name,
            title,
            f"{{}}-{name}.yaml",
            options={each: f"deploy.{name}.{each}" for each in _OF_CLUSTER},
            keeps_in_volumes=True,
        )
        for name, title in zip(POD_TARGETS, ("Kubeflow Trainer 2, or JobSet", "the Kubeflow training operator 1"))
    ),
)
BY_NAME = {each.name: each for each in (HERE, *_PLATFORMS)}
ALL_TARGETS = tuple(each.name for each in _PLATFORMS)
# Those that run each step in a container.
TARGETS = tuple(each.name for each in _PLATFORMS if each.runs_steps)
# The targets' names in earlier releases.
_FORMER = {"kubeflow_v2": KUBEFLOW}
# Platforms without a compiler, and what to do there; see docs/other-platforms.md.
OTHERS = {
    "airflow": "call `tfx-estimator run` by a BashOperator, or run the image by a KubernetesPodOperator",
    "ray": "submit `tfx-estimator run` as a job: ray job submit -- tfx-estimator run …",
    "sagemaker": "start the image as a training job whose entry point is `tfx-estimator run`",
    "slurm": "start the same command in each task: srun tfx-estimator run …",
}
TITLES = ", ".join(each.title for each in _PLATFORMS[:-1]) + f" or {_PLATFORMS[-1].title}"


def resolve(name: str) -> str:
    """Returns a target's current name; an unknown name is returned unchanged."""
    return _FORMER.get(name, name)


def sections() -> dict[str, tuple[Any, Any]]:
    """Returns the platforms' own sections of `deploy` by their keys: the kind, and the key with its default."""
    from tfx_estimator.pipeline.platforms.training_jobs import section as training_jobs
    from tfx_estimator.pipeline.platforms.vertex import section as vertex

    return {**vertex.SECTIONS, **training_jobs.SECTIONS}
