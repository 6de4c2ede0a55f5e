"""The `trainer.distribution` section: how training is distributed."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic.v1 import Field, confloat, conint

from pipeline.config.section import Section

# Strategies whose tasks are several processes.
CLUSTER_STRATEGIES = ("multi_worker_mirrored", "parameter_server")
_DEFAULT_WORKERS = 2

AnyStrategy = Literal["one_device", "mirrored", "central_storage", "multi_worker_mirrored", "parameter_server", "tpu"]


class Devices(Section):
    """How many devices of each kind a strategy uses; logical devices where a CPU is split."""

    cpu: Optional[conint(ge=1, le=64)] = Field(default=None, description="logical CPUs")  # type: ignore[valid-type]
    gpu: Optional[conint(ge=1, le=64)] = Field(default=None, description="GPUs")  # type: ignore[valid-type]

    @property
    def count(self) -> int:
        """Declared devices; 1 where none are."""
        return self.cpu or self.gpu or 1


class Strategy(Section):
    """One tf.distribute strategy of one process, and its options."""

    strategy: Literal["one_device", "mirrored", "central_storage"] = Field(
        default="one_device", description="the tf.distribute strategy"
    )
    devices: Devices = Field(default=Devices(), description="at most one kind; none is all GPUs, or the CPU")
    cross_device_ops: Literal["reduction_to_one_device", "hierarchical_copy", "nccl"] = Field(
        # TensorFlow's own default hangs in an Estimator on CPU.
        default="reduction_to_one_device",
        description="how `mirrored` adds up gradients",
    )
    num_packs: Optional[conint(ge=0, le=1000)] = Field(  # type: ignore[valid-type]
        default=None, description="packs of gradients of `hierarchical_copy` and `nccl`; null is TensorFlow's own"
    )


class TrainStrategy(Strategy):
    """The strategy of training: of one process, or of a cluster of them."""

    strategy: AnyStrategy = Field(  # type: ignore[assignment]
        default="one_device", description="the tf.distribute strategy"
    )
    workers: Optional[conint(ge=1, le=64)] = Field(  # type: ignore[valid-type]
        default=None, description="processes that train, the chief among them; null is 2, or what TF_CONFIG says"
    )
    ps: Optional[conint(ge=1, le=64)] = Field(  # type: ignore[valid-type]
        default=None, description="parameter servers of `parameter_server`; null is 1, or what TF_CONFIG says"
    )
    communication: Literal["auto", "ring", "nccl"] = Field(
        default="auto", description="how the workers of `multi_worker_mirrored` add up gradients"
    )
    bytes_per_pack: conint(ge=0, le=2**31) = Field(  # type: ignore[valid-type]
        default=0, description="gradients that `multi_worker_mirrored` adds up in one go; 0 is TensorFlow's own choice"
    )
    timeout_seconds: confloat(gt=0, le=24 * 3600) = Field(  # type: ignore[valid-type]
        # Without one a stopped worker hangs all others.
        default=60.0,
        description="longest wait for another worker in a step; more than the slowest step or checkpoint takes",
    )
    tpu: Optional[str] = Field(default=None, description="name or grpc:// address of the TPU of `tpu`")

    @property
    def is_cluster(self) -> bool:
        """Are there several processes."""
        return self.strategy in CLUSTER_STRATEGIES

    @property
    def worker_count(self) -> int:
        """Processes that train, the chief among them."""
        return (self.workers or _DEFAULT_WORKERS) if self.is_cluster else 1

    @property
    def ps_count(self) -> int:
        """Parameter servers."""
        return (self.ps or 1) if self.strategy == "parameter_server" else 0

    @property
    def replicas(self) -> int:
        """Parts that a global batch is split into; a worker of `parameter_server` splits its own among its devices."""
        if self.strategy == "one_device":
            return 1
        return self.devices.count * (1 if self.strategy == "parameter_server" else self.worker_count)


class Distribution(Section):
    """The strategies of training and of evaluation, and the contract of the supervisor."""

    train: TrainStrategy = TrainStrategy()
    eval: Strategy = Strategy()
    evaluator: bool = Field(
        default=False, description="a task of its own that evaluates while the cluster trains, and exports at the end"
    )
    start_delay_secs: conint(ge=0, le=24 * 3600) = Field(  # type: ignore[valid-type]
        default=0, description="seconds until the evaluator's first look for a checkpoint"
    )
    throttle_secs: conint(ge=1, le=24 * 3600) = Field(  # type: ignore[valid-type]
        default=1, description="seconds between the starts of two evaluations by the evaluator"
    )
    sharding: Literal["element", "file"] = Field(
        default="element",
        description="what a worker reads: every n-th example after the same shuffle (the global batches are those of "
        "one device), or files of its own (reads less)",
    )
    max_restarts: conint(ge=0, le=1000) = Field(  # type: ignore[valid-type]
        default=3, description="restarts from the last checkpoint, after which a dead or stalled task is an error"
    )
    network: Literal["private", "host"] = Field(
        default="private",
        description="where a cluster on this machine listens: in a network of its own, or, without authentication, on "
        "every address of this machine",
    )
