"""The platforms that a pipeline can be compiled for, and what each of them can do.

Standard library only, as the command line's help names them: what there is to do on a platform stands in its folder,
and is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

VERTEX, KUBEFLOW, TRAINJOB, TFJOB = "vertex", "kubeflow", "trainjob", "tfjob"
# Those of a training job, whose chief runs the pipeline; its section of `deploy` has their name.
POD_TARGETS = (TRAINJOB, TFJOB)


@dataclass(frozen=True)
class Platform:
    """Where a pipeline is compiled for.

    Args:
        name: The target, on the command line.
        title: For people.
        folder: The package of what is done on it: `compile` and `service`.
        file: What a compiled file is called.
        runs_steps: Whether it takes a PipelineSpec, and runs the steps by itself, each in a container, without TFX's
            drivers; else one process runs them all.
        resolver: Which resolver it runs: ours, TFX's own only, or none.
        trains_in_pods: Whether what `deploy.trainjob.train` says, or `deploy.tfjob.train`, is done there.
        options: Options of `submit` that it takes, by the key of the declaration that they stand for, if any.
        jobs: A regular expression of a job's name, by which it is found without a note; its groups are the note's.
        engine: What TFX's own command line calls it; empty where it has no word for it.
        clusters: Where each process of a cluster has a machine for itself.
        section: Its own section of `deploy`, which no other platform reads.
        ends_steps: Whether a step is told that its run is cancelled.
        needed: Further keys of `deploy` that it cannot do without, and what is expected of them.
        not_of_steps: Keys of a step that it has no word for: why, and what to say in its place.
        no_pods: Why `deploy.security_context` has no effect; empty where it has one.
        has_volumes: Whether steps may mount volumes, and secrets; and whether so that they cannot write there.
        keeps_in_volumes: Whether the pipeline's own folder lies in one, as its pods meet there; else in a bucket.
        accelerator: A regular expression of what it calls an accelerator; and one of them.
        hides_results: Whether it does not tell what its steps have made.
        notes: Whether its module `rules` has something to say before it is deployed: `note`.
    """

    name: str = ""
    title: str = "this machine"
    folder: str = ""
    file: str = ""
    runs_steps: bool = False
    resolver: Literal["own", "stock", ""] = "own"
    trains_in_pods: bool = False
    options: dict[str, str] = field(default_factory=dict)
    jobs: str = ""
    engine: str = ""
    clusters: str = "the targets trainjob and tfjob have a pod for each"
    hides_results: bool = False
    section: str = ""
    ends_steps: bool = True
    needed: dict[str, str] = field(default_factory=dict)
    not_of_steps: dict[str, tuple[str, str]] = field(default_factory=dict)
    no_pods: str = ""
    has_volumes: bool = True
    has_read_only_volumes: bool = True
    keeps_in_volumes: bool = False
    accelerator: str = r"[a-z0-9.-]+/[A-Za-z0-9._-]+"
    an_accelerator: str = "nvidia.com/gpu"
    notes: bool = False

    def part(self, name: str) -> Any:
        """Returns a module of its folder."""
        return importlib.import_module(f"{__package__}.{self.folder}.{name}")


# Where there is no target.
HERE = Platform(trains_in_pods=True)
_OF_CLUSTER = {"context": "", "namespace": ""}
_NO_NODES = ("Vertex AI has no nodes of yours, nor taints", "the machines of deploy.vertex")
_NO_STEPS = "the job has one for all, and no steps"
_OF_SERVICE = {**_OF_CLUSTER, "endpoint": "", "experiment": ""}
_PLATFORMS = (
    Platform(
        VERTEX,
        "Vertex AI Pipelines",
        "vertex",
        "{}.json",
        runs_steps=True,
        # It knows no other strategies.
        resolver="stock",
        jobs=r"projects/(?P<project>[^/\s]+)/locations/(?P<region>[^/\s]+)/pipelineJobs/[^/\s]+",
        engine="vertex",
        clusters="deploy.vertex has a machine for each",
        section="vertex",
        needed={"project": "the ID of a Google Cloud project", "region": "the region of the bucket: europe-west4"},
        not_of_steps={"node_selector": _NO_NODES, "tolerations": _NO_NODES},
        no_pods="Vertex AI has no pods of yours",
        has_volumes=False,
        accelerator=r"[A-Z][A-Z0-9_]+",
        an_accelerator="NVIDIA_TESLA_T4",
        notes=True,
    ),
    Platform(
        KUBEFLOW,
        "Kubeflow Pipelines 2",
        "kubeflow",
        "{}-kubeflow.yaml",
        runs_steps=True,
        trains_in_pods=True,
        # Its backend says of every resolver that it is not implemented yet.
        resolver="",
        no_pods="a PipelineSpec has no field for it; the cluster's own settings hold, see docs/kubeflow.md",
        has_read_only_volumes=False,
        ends_steps=False,
        options=_OF_SERVICE,
        hides_results=True,
    ),
    *(
        Platform(
            name,
            title,
            "training_jobs",
            f"{{}}-{name}.yaml",
            options={each: f"deploy.{name}.{each}" for each in _OF_CLUSTER},
            not_of_steps={"retries": (_NO_STEPS, f"deploy.{name}.backoff_limit")},
            keeps_in_volumes=True,
            notes=True,
        )
        for name, title in zip(POD_TARGETS, ("Kubeflow Trainer 2, or JobSet", "the Kubeflow training operator 1"))
    ),
)
BY_NAME = {each.name: each for each in (HERE, *_PLATFORMS)}
ALL_TARGETS = tuple(each.name for each in _PLATFORMS)
# Those that run the pipeline's steps by themselves.
TARGETS = tuple(each.name for each in _PLATFORMS if each.runs_steps)
# By what earlier releases called a target.
_FORMER = {"kubeflow_v2": KUBEFLOW}
# Others, for which nothing is compiled, and what to do there; docs/other-platforms.md says more.
OTHERS = {
    "airflow": "have a BashOperator call `tfx-estimator run`, or a KubernetesPodOperator the image",
    "ray": "submit `tfx-estimator run` as a job: ray job submit -- tfx-estimator run …",
    "sagemaker": "start the image as a training job whose entry point is `tfx-estimator run`",
    "slurm": "start the same command in each task: srun tfx-estimator run …",
}
TITLES = ", ".join(each.title for each in _PLATFORMS[:-1]) + f" or {_PLATFORMS[-1].title}"


def resolve(name: str) -> str:
    """Returns the target that a name is of, also one of an earlier release; another name as it is."""
    return _FORMER.get(name, name)


def own_rules() -> Any:
    """Returns the rules that a platform has beside those that follow from the above."""
    return BY_NAME[TFJOB].part("rules").RULES
