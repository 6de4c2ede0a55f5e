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
# Seconds between two evaluations: of an evaluator, which has nothing else to do; and of a process that trains as well,
# the default of tf.estimator.EvalSpec.
_EVALUATORS_PACE, _OWN_PACE = 1, 600


def _wrong_choice(value: Union[int, tuple[int, ...]]) -> str:
    indices = range(min(value, _MAX_DEVICES + 1)) if isinstance(value, int) else value
    right = indices and len(set(indices)) == len(indices) and {*indices} <= {*range(_MAX_DEVICES)}
    return "" if right else f"it is no number from 1 to {_MAX_DEVICES}, and no list of some from 0, each once"


def _of_a_kind(description: str) -> Any:
    # Editors are told the limits of a number, and of a list.
    limits = {"minimum": 1, "maximum": _MAX_DEVICES, "minItems": 1, "uniqueItems": True}
    return Field(None, description, schema=limits, check=_wrong_choice)


class Devices(Section):
    """Which devices of a kind a strategy uses; logical devices if a CPU is split."""

    cpu: Optional[Union[int, tuple[int, ...]]] = _of_a_kind("how many logical CPUs; or, from 0, which of them: [0, 2]")
    gpu: Optional[Union[int, tuple[int, ...]]] = _of_a_kind("how many GPUs, from the first; or, from 0, which: [1, 3]")

    @property
    def indices(self) -> tuple[int, ...]:
        """The declared devices, from 0; empty if none are."""
        chosen = self.cpu or self.gpu or ()
        return tuple(range(chosen)) if isinstance(chosen, int) else chosen

    @property
    def count(self) -> int:
        """Declared devices; 1 if none are."""
        return len(self.indices) or 1

    @property
    def text(self) -> str:
        """As YAML would write them, for example `gpu: [1, 3]`; empty if none are declared."""
        kind, chosen = ("cpu", self.cpu) if self.cpu else ("gpu", self.gpu)
        return f"{kind}: {list(chosen) if isinstance(chosen, tuple) else chosen}" if chosen else ""


class Strategy(Section):
    """One tf.distribute strategy of one process, and its options."""

    strategy: ProcessStrategy = Field(ONE_DEVICE, "the tf.distribute strategy")
    devices: Devices = inner(
        "at most one kind; none is all GPUs, or the CPU; a number is that of logical CPUs",
        short_form={"type": "integer", "minimum": 1, "maximum": _MAX_DEVICES},
        expand=shorthand("cpu", int),
    )
    cross_device_ops: Literal["reduction_to_one_device", "hierarchical_copy", "nccl"] = Field(
        # TensorFlow's own default hangs in an Estimator on CPU.
        "reduction_to_one_device",
        "how `mirrored` adds up gradients",
    )
    num_packs: Optional[int] = number(
        None, 0, 1000, "packs of gradients of `hierarchical_copy` and `nccl`; null is TensorFlow's own"
    )

    @property
    def traits(self) -> StrategyTraits:
        """What is true of this strategy, whatever else is declared."""
        return TRAITS[self.strategy]

    distributes = property(attrgetter("traits.distributes"))
    synchronous = property(attrgetter("traits.synchronous"))
    asynchronous = property(attrgetter("traits.asynchronous"))
    is_cluster = property(attrgetter("traits.is_cluster"))

    @property
    def is_collective(self) -> bool:
        """Do several processes add up their gradients in each step."""
        return self.is_cluster and self.synchronous

    def takes(self, option: str) -> bool:
        """Is an option that not every strategy takes one of this strategy's."""
        return option in self.traits.options


class VariablePartitioner(Section):
    """How variables are cut into parts for several parameter servers: exactly one of the first three."""

    min_bytes: Optional[int] = number(
        None, 1, 2**40, "least size of a part: as many as there may be of it (MinSizePartitioner)"
    )
    max_bytes: Optional[int] = number(
        None, 1, 2**40, "most size of a part: as few as there may be of it (MaxSizePartitioner)"
    )
    fixed_shards: Optional[int] = number(None, 1, 1024, "parts of each variable (FixedShardsPartitioner)")
    max_shards: Optional[int] = number(
        None, 1, 1024, "most parts of a variable; null is one a server, with max_bytes no limit"
    )


class TrainStrategy(Strategy):
    """The strategy of training: of one process, or of a cluster of them."""

    strategy: AnyStrategy = Field(  # type: ignore[assignment]
        ONE_DEVICE, "the tf.distribute strategy"
    )
    workers: Optional[int] = number(
        None, 1, 64, "processes that train, the chief among them; null is 2, or what TF_CONFIG says"
    )
    ps: Optional[int] = number(
        None, 1, 64, "parameter servers of `parameter_server`; null is 1, or what TF_CONFIG says"
    )
    variable_partitioner: Optional[VariablePartitioner] = Field(
        None, "of `parameter_server` on the Keras paths: cuts large variables; null cuts none"
    )
    communication: Literal["auto", "ring", "nccl"] = Field(
        "auto", "how the workers of `multi_worker_mirrored` add up gradients"
    )
    bytes_per_pack: int = number(
        0, 0, 2**31, "gradients that `multi_worker_mirrored` adds up in one go; 0 is TensorFlow's own choice"
    )
    gradient_compression: Literal["none", "fp16", "bf16"] = Field(
        "none", "gradients in two bytes an entry, in place of four, while they are added up"
    )
    timeout_seconds: float = number(
        # Without a timeout, a stopped worker hangs all others.
        60.0,
        None,
        24 * 3600,
        "longest wait for another worker in a step; more than the slowest step or checkpoint takes",
        operational=True,
        gt=0,
    )
    tpu: Optional[str] = Field(None, "name or grpc:// address of the TPU of `tpu`", operational=True)

    @property
    def worker_count(self) -> int:
        """Processes that train, the chief among them."""
        return (self.workers or _DEFAULT_WORKERS) if self.is_cluster else 1

    @property
    def ps_count(self) -> int:
        """Parameter servers."""
        return (self.ps or 1) if self.asynchronous else 0

    @property
    def replicas(self) -> int:
        """Parts that a global batch is split into; a worker of `parameter_server` splits its own among its devices."""
        if not self.distributes:
            return 1
        return self.devices.count * (self.worker_count if self.synchronous else 1)


class Distribution(Section):
    """The strategies of training and of evaluation, and the contract of the supervisor."""

    train: TrainStrategy = inner("or, in short, `mirrored:2`", short_form=STRATEGY_SCHEMA, expand=expand_strategy)
    eval: Strategy = inner("or, in short, `mirrored:2`", short_form=STRATEGY_SCHEMA, expand=expand_strategy)
    evaluator: bool = Field(False, "a task of its own that evaluates while the cluster trains, and exports at the end")
    # These two decide among which checkpoints a BestExporter chooses.
    start_delay_secs: int = number(0, 0, 24 * 3600, "seconds until the evaluator's first look for a checkpoint")
    throttle_secs: Optional[int] = number(
        None,
        1,
        24 * 3600,
        "seconds between the starts of two evaluations while training goes on: 1 by the evaluator, and "
        "600, as of tf.estimator, in a training of one process, unless declared",
    )
    sharding: Literal["element", "file"] = Field(
        "element",
        "what a worker reads: every n-th example after the same shuffle (the global batches are those of "
        "one device), or files of its own (reads less)",
    )
    input_batch: Literal["global", "per_replica"] = Field(
        "global",
        "what an input_fn of your own that takes no `input_context` makes: batches of all replicas, which "
        "are shared among them, or whole batches for each replica, as under plain TensorFlow",
    )
    max_restarts: int = number(
        3,
        0,
        1000,
        "restarts from the last checkpoint, after which a dead or stalled task is an error",
        operational=True,
    )
    acknowledge: tuple[Literal["dropout"], ...] = Field(
        (), "what the check under several replicas need not warn of: [dropout], which draws by chance", operational=True
    )
    network: Literal["private", "host"] = Field(
        "private",
        "where a cluster on this machine listens: in a network of its own, or, without authentication, on "
        "every address of this machine",
        operational=True,
    )

    @property
    def distributes(self) -> bool:
        """May there be several replicas, in training or in evaluation."""
        return self.train.distributes or self.eval.distributes

    @property
    def seconds_between_evaluations(self) -> int:
        """Seconds between the starts of two evaluations of checkpoints while training goes on, at least.

        Source: https://www.tensorflow.org/api_docs/python/tf/estimator/EvalSpec, `throttle_secs`.
        """
        return self.throttle_secs or (_EVALUATORS_PACE if self.evaluator else _OWN_PACE)

    @property
    def pods(self) -> dict[str, int]:
        """How many processes there are of each type, in a cluster of machines; types without one are left out."""
        train = self.train
        counts = {"chief": 1, "worker": train.worker_count - 1, "ps": train.ps_count, "evaluator": int(self.evaluator)}
        return {name: count for name, count in counts.items() if count}

    def resolved(self, workers: Optional[int] = None, ps: Optional[int] = None) -> Distribution:
        """Returns the section with the sizes of the cluster that is there; those that are left out as declared."""
        train, sizes = self.train, {}
        if train.takes("workers"):
            sizes["workers"] = workers or train.worker_count
        if train.takes("ps"):
            sizes["ps"] = ps or train.ps_count
        return self.copy(update={"train": train.copy(update=sizes)})
