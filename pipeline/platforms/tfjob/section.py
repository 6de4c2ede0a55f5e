"""The section `deploy.tfjob`: training in a TFJob, of the Kubeflow training operator."""

from __future__ import annotations

from typing import Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number
from tfx_estimator.pipeline.platforms.kubeflow.section import Toleration

_MONTH = 30 * 24 * 3600


class Replica(Section):
    """What each pod of one type may use; what is left open is that of `deploy.nodes.Trainer`."""

    cpu: Optional[float] = number(None, 0.001, 1024, "CPUs; null is nodes.Trainer's, or else the cluster's own")
    memory_gb: Optional[float] = number(None, 0.001, 16384, "memory, in 10^9 bytes; null likewise")
    accelerator: Optional[str] = Field(
        default=None,
        description="`nvidia.com/gpu` and the like; null is nodes.Trainer's where steps are done",
    )
    accelerators: Optional[int] = number(None, 1, 64, "how many of them; null is 1")
    node_selector: Optional[dict[str, str]] = Field(
        default=None, description="labels that the pods' nodes must have; null is nodes.Trainer's"
    )
    tolerations: Optional[tuple[Toleration, ...]] = Field(
        default=None, description="taints of nodes that the pods bear; null likewise"
    )


class Replicas(Section):
    """The pods of the TFJob, by type; how many there are `trainer.distribution` says."""

    chief: Replica = Replica()
    worker: Replica = Replica()
    ps: Replica = Replica()
    evaluator: Replica = Replica()


class TfJob(Section):
    """A TFJob: what `compile --target tfjob` writes, or where `run` has the Trainer train."""

    train: bool = Field(
        default=False,
        description="whether `run`, or the step Trainer of the target kubeflow, trains in a TFJob, and not in itself",
    )
    namespace: Optional[str] = Field(
        default=None, description="of the TFJob and its pods; null is that of the kubeconfig's context, or of the pod"
    )
    context: Optional[str] = Field(default=None, description="of the kubeconfig; null is its current one")
    replicas: Replicas = Field(default=Replicas(), description="resources of the pods, by type")
    # `Always` is missing: a task that is done would be restarted, and the TFJob would never end.
    restart_policy: Literal["ExitCode", "OnFailure", "Never"] = Field(
        default="ExitCode",
        description="of every pod; with ExitCode one that was killed, or lost another one, is started again, and one "
        "whose own code failed is not",
    )
    backoff_limit: Optional[int] = number(
        None,
        0,
        1000,
        "restarts, after which the TFJob fails; null is trainer.distribution.max_restarts; with "
        "ExitCode `run` counts them, or `submit` while it follows",
    )
    clean_pod_policy: Literal["Running", "All", "None"] = Field(
        default="Running", description="pods that are removed when the TFJob has ended"
    )
    active_deadline_seconds: Optional[int] = number(None, 1, _MONTH, "longest time of the TFJob; null is none")
    ttl_seconds_after_finished: Optional[int] = number(
        None, 0, _MONTH, "seconds until an ended TFJob is removed; null leaves it"
    )
    pending_timeout: float = number(
        1800.0,
        None,
        _MONTH,
        "seconds that `run`, and `submit` while it follows, wait for all pods to start: for nodes, images",
        gt=0,
    )
