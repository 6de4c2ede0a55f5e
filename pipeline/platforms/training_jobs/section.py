"""The sections `deploy.trainjob` and `deploy.tfjob`: training in pods that Kubeflow's operators start."""

from __future__ import annotations

from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

_MONTH = 30 * 24 * 3600


class Replica(Section):
    """Resources of each pod of one role; defaults are those of `deploy.nodes.Trainer`."""

    cpu: Optional[float] = number(None, 0.001, 1024, "CPUs; null is nodes.Trainer's, or else the cluster's own")
    memory_gb: Optional[float] = number(None, 0.001, 16384, "memory in 10^9 bytes; null like cpu's")
    accelerator: Optional[str] = Field(
        default=None,
        description="for example nvidia.com/gpu; null is nodes.Trainer's for chief and workers",
    )
    accelerators: Optional[int] = number(None, 1, 64, "how many of them; null is 1")


class Replicas(Section):
    """The pods by role; `trainer.distribution` sets their numbers."""

    ps: Replica = Replica()
    evaluator: Replica = Replica()


class TfReplicas(Replicas):
    """The pods of a TFJob."""

    chief: Replica = Replica()
    worker: Replica = Replica()


class TrainReplicas(Replicas):
    """The pods of a TrainJob, which calls chief and workers nodes and gives them equal resources."""

    node: Replica = Replica()


class TrainingJob(Section):
    """The training job that `compile` writes for the target of this name."""

    namespace: Optional[str] = Field(
        default=None, description="of the job and its pods; null is that of the kubeconfig's context, or of the pod"
    )
    context: Optional[str] = Field(default=None, description="of the kubeconfig; null is its current one")
    backoff_limit: Optional[int] = number(
        None, 0, 1000, "restarts before the job fails; null is trainer.distribution.max_restarts"
    )
    active_deadline_seconds: Optional[int] = number(None, 1, _MONTH, "time limit of the job; null is none")
    pending_timeout: float = number(
        1800.0,
        None,
        _MONTH,
        "seconds that `submit`, while it follows, and a step wait for all pods to start, also after a restart",
        gt=0,
    )
    replicas: Replicas = Field(default=Replicas(), description="resources of the pods, by type")

    def role(self, process: str) -> str:
        """Returns the role of a process's pods."""
        return process if process in self.replicas.__fields__ else "node"

    def replica(self, process: str) -> Replica:
        """Returns the resources of a process's pods."""
        return getattr(self.replicas, self.role(process))

    def accelerator(self, process: str, trainer: Any) -> tuple[Optional[str], Optional[int]]:
        """Returns the accelerator of a process's pods, None for none, and the number per pod, None for one.

        Args:
            trainer: The resources of `deploy.nodes.Trainer`.
        """
        own = self.replica(process)
        if own.accelerator is None and process in ("chief", "worker"):
            return trainer.accelerator, trainer.accelerators
        return own.accelerator, own.accelerators


class TrainJob(TrainingJob):
    """A TrainJob of Kubeflow Trainer 2, or the JobSet that one is made of."""

    train: bool = Field(False, "whether the step Trainer of the target kubeflow trains in a TrainJob")
    kind: Literal["TrainJob", "JobSet"] = Field(
        default="TrainJob", description="JobSet where the cluster has JobSets, and no Kubeflow Trainer"
    )
    replicas: TrainReplicas = Field(default=TrainReplicas(), description="resources of the pods, by type")


class TfJob(TrainingJob):
    """A TFJob, of the Kubeflow training operator 1.x; with ExitCode, `submit` counts its restarts."""

    # Not `Always`: finished tasks would be restarted, and the TFJob would never end.
    restart_policy: Literal["ExitCode", "OnFailure", "Never"] = Field(
        default="ExitCode",
        description="of every pod; with ExitCode a pod that was killed, or lost another one, is restarted, and one "
        "with its own error is not",
    )
    replicas: TfReplicas = Field(default=TfReplicas(), description="resources of the pods, by type")
    clean_pod_policy: Literal["Running", "All", "None"] = Field(
        default="Running",
        description="pods that are removed when the TFJob has ended; None keeps parameter servers running",
    )
    ttl_seconds_after_finished: Optional[int] = number(
        None, 0, _MONTH, "seconds until an ended TFJob is removed; null leaves it"
    )


SECTIONS = {
    "trainjob": (TrainJob, Field(TrainJob(), "for the target trainjob, and for a step that trains in a TrainJob")),
    "tfjob": (TfJob, Field(TfJob(), "for the target tfjob")),
}
