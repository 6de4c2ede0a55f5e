"""The `trainer.distribution` section: how training is distributed."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.section import Field, Section, inner, number, shorthand
from tfx_estimator.pipeline.config.strategies import (
    ONE_DEVICE,
    STRATEGY_SCHEMA,
    TRAITS,
    AnyStrategy,
    ProcessStrategy,
    StrategyTraits,
    expand_strategy,
)

_DEFAULT_WORKERS = 2
_MAX_DEVICES = 64
# Default throttle_secs of an evaluator task, which does nothing else; and of a process that also trains, the default of
# tf.estimator.EvalSpec.
_EVALUATOR_THROTTLE, _TRAINER_THROTTLE = 1, 600


def _wrong_devices(value: Union[int, tuple[int, ...]]) -> str:
    indices = range(min(value, _MAX_DEVICES + 1)) if isinstance(value, int) else value
    valid = indices and len(set(indices)) == len(indices) and {*indices} <= {*range(_MAX_DEVICES)}
    return "" if valid else f"it is neither a number from 1 to {_MAX_DEVICES} nor a list of distinct indices from 0"


def _devices(description: str) -> Any:
    # JSON Schema applies each limit only to its type: a number, or a list.
    limits = {"minimum": 1, "maximum": _MAX_DEVICES, "minItems": 1, "uniqueItems": True}
    return Field(None, description, schema=limits, check=_wrong_devices)


class Devices(Section):
    """The devices of a strategy; several CPU devices are logical devices."""

    cpu: Optional[Union[int, tuple[int, ...]]] = _devices("number of logical CPUs; or a list of indices from 0: [0, 2]")
    gpu: Optional[Union[int, tuple[int, ...]]] = _devices("number of GPUs; or a list of indices from 0: [1, 3]")

    @property
    def indices(self) -> tuple[int, ...]:
        """Indices of the declared devices; empty if none are declared."""
        chosen = self.cpu or self.gpu or ()
        return tuple(range(chosen)) if isinstance(chosen, int) else chosen

    @property
    def count(self) -> int:
        """Number of declared devices; 1 if none are declared."""
        return len(self.indices) or 1

    @property
    def text(self) -> str:
        """The devices as YAML, for example `gpu: [1, 3]`; empty if none are declared."""
        kind, chosen = ("cpu", self.cpu) if self.cpu else ("gpu", self.gpu)
        return f"{kind}: {list(chosen) if isinstance(chosen, tuple) else chosen}" if chosen else ""


class Strategy(Section):
    """One tf.distribute strategy of one process, and its options."""

    strategy: ProcessStrategy = Field(ONE_DEVICE, "the tf.distribute strategy")
    devices: Devices = inner(
        "cpu or gpu, not both; by default all GPUs, or else the CPU; a number is that of logical CPUs",
        short_form={"type": "integer", "minimum": 1, "maximum": _MAX_DEVICES},
        expand=shorthand("cpu", int),
    )
    cross_device_ops: Literal["reduction_to_one_device", "hierarchical_copy", "nccl"] = Field(
        # TensorFlow's own default hangs in an Estimator on CPU.
        "reduction_to_one_device",
        "how `mirrored` all-reduces gradients",
    )
    num_packs: Optional[int] = number(None, 0, 1000, "num_packs of `hierarchical_copy`, `nccl`; null is TensorFlow's")

    @property
    def traits(self) -> StrategyTraits:
        """The strategy's traits, independent of its options."""
        return TRAITS[self.strategy]

    distributes = property(attrgetter("traits.distributes"))
    synchronous = property(attrgetter("traits.synchronous"))
    asynchronous = property(attrgetter("traits.asynchronous"))
    is_cluster = property(attrgetter("traits.is_cluster"))

    @property
    def is_collective(self) -> bool:
        """True if several processes all-reduce their gradients in each step."""
        return self.is_cluster and self.synchronous

    def takes(self, option: str) -> bool:
        """Returns whether the strategy takes a strategy-specific option."""
        return option in self.traits.options


class VariablePartitioner(Section):
    """How variables are sharded over several parameter servers: exactly one of the first three."""

    min_bytes: Optional[int] = number(None, 1, 2**40, "smallest shard in bytes (MinSizePartitioner)")
    max_bytes: Optional[int] = number(None, 1, 2**40, "largest shard in bytes (MaxSizePartitioner)")
    fixed_shards: Optional[int] = number(None, 1, 1024, "shards of each variable (FixedShardsPartitioner)")
    max_shards: Optional[int] = number(None, 1, 1024, "maximum shards; null is one per server, no limit with max_bytes")


class TrainStrategy(Strategy):
    """The strategy of training, of one process or a cluster."""

    strategy: AnyStrategy = Field(  # type: ignore[assignment]
        ONE_DEVICE, "the tf.distribute strategy"
    )
    workers: Optional[int] = number(None, 1, 64, "processes that train, including the chief; null is 2, or TF_CONFIG's")
    ps: Optional[int] = number(None, 1, 64, "parameter servers of `parameter_server`; null is 1, or TF_CONFIG's")
    variable_partitioner: Optional[VariablePartitioner] = Field(
        None, "of `parameter_server` on the Keras paths: shards large variables; null shards none"
    )
    communication: Literal["auto", "ring", "nccl"] = Field("auto", "how `multi_worker_mirrored` all-reduces gradients")
    bytes_per_pack: int = number(0, 0, 2**31, "bytes per all-reduce of `multi_worker_mirrored`; 0: TensorFlow's choice")
    gradient_compression: Literal["none", "fp16", "bf16"] = Field(
        "none", "all-reduces gradients with two bytes per entry instead of four"
    )
    timeout_seconds: float = number(
        # Without a timeout, a stopped worker hangs all others.
        60.0,
        None,
        24 * 3600,
        "longest wait for another worker in a step; must exceed the slowest step and checkpoint",
        operational=True,
        gt=0,
    )
    tpu: Optional[str] = Field(None, "name or grpc:// address of the TPU of `tpu`", operational=True)

    @property
    def worker_count(self) -> int:
        """Processes that train, including the chief."""
        return (self.workers or _DEFAULT_WORKERS) if self.is_cluster else 1

    @property
    def ps_count(self) -> int:
        """Parameter servers."""
        return (self.ps or 1) if self.asynchronous else 0

    @property
    def replicas(self) -> int:
        """Replicas that share a global batch; under `parameter_server`, the devices of one worker."""
        if not self.distributes:
            return 1
        return self.devices.count * (self.worker_count if self.synchronous else 1)


class Distribution(Section):
    """The strategies of training and evaluation, and the supervisor's options."""

    train: TrainStrategy = inner("in short, `mirrored:2`", short_form=STRATEGY_SCHEMA, expand=expand_strategy)
    eval: Strategy = inner("in short, `mirrored:2`", short_form=STRATEGY_SCHEMA, expand=expand_strategy)
    evaluator: bool = Field(False, "an extra task that evaluates while the cluster trains, and exports at the end")
    # These two determine the checkpoints among which a BestExporter chooses.
    start_delay_secs: int = number(0, 0, 24 * 3600, "seconds until the evaluator first looks for a checkpoint")
    throttle_secs: Optional[int] = number(
        None,
        1,
        24 * 3600,
        "seconds between the starts of two evaluations during training; null is 1 for the evaluator task, and "
        "600, as in tf.estimator, for training in one process",
    )
    sharding: Literal["element", "file"] = Field(
        "element",
        "what a worker reads: every n-th example after the same shuffle (the global batches equal those of "
        "one device), or files of its own (reads less)",
    )
    input_batch: Literal["global", "per_replica"] = Field(
        "global",
        "what an input_fn of your own without `input_context` returns: global batches, which are split "
        "among the replicas, or a batch per replica, as under plain TensorFlow",
    )
    max_restarts: int = number(
        3, 0, 1000, "restarts from the last checkpoint before a dead or stalled task is an error", operational=True
    )
    acknowledge: tuple[Literal["dropout"], ...] = Field(
        (), "warnings of the replica check to suppress: [dropout], which is random", operational=True
    )
    network: Literal["private", "host"] = Field(
        "private",
        "where a cluster on this machine listens: in a private network, or, without authentication, on "
        "every address of this machine",
        operational=True,
    )

    @property
    def distributes(self) -> bool:
        """True if there may be several replicas, in training or evaluation."""
        return self.train.distributes or self.eval.distributes

    @property
    def seconds_between_evaluations(self) -> int:
        """Minimum seconds between the starts of two evaluations during training.

        Source: https://www.tensorflow.org/api_docs/python/tf/estimator/EvalSpec, `throttle_secs`.
        """
        return self.throttle_secs or (_EVALUATOR_THROTTLE if self.evaluator else _TRAINER_THROTTLE)

    @property
    def pods(self) -> dict[str, int]:
        """Processes by role, in a cluster of machines; roles without one are left out."""
        train = self.train
        counts = {"chief": 1, "worker": train.worker_count - 1, "ps": train.ps_count, "evaluator": int(self.evaluator)}
        return {name: count for name, count in counts.items() if count}

    def resolved(self, workers: Optional[int] = None, ps: Optional[int] = None) -> Distribution:
        """Returns the section with the actual sizes of the cluster; None keeps the declared or default size."""
        train, sizes = self.train, {}
        if train.takes("workers"):
            sizes["workers"] = workers or train.worker_count
        if train.takes("ps"):
            sizes["ps"] = ps or train.ps_count
        return self.copy(update={"train": train.copy(update=sizes)})
