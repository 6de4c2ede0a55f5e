"""Puts together what a training costs: of a replica, of a process, and between processes; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.estimate.wire import Wire, wire_of

# Batches that the input makes ready beside the one that is trained: see `data.input_fn`.
_PREFETCHED = 2
# What running a graph adds to having built it: threads, and the kernels' own code and constants. Measured.
_RUNNING_BYTES = 45 << 20


@dataclass(frozen=True)
class Memory:
    """Bytes.

    Args:
        weights: Of the model's variables.
        gradients: Of those that are trained.
        activations: What a step holds beside those at its peak: its batch, what layers put out, copies of oneDNN.
        input: Batches that are made ready.
        data: Training files that are kept in memory; None where the data set is not there yet.
        runtime: Of a process before it trains.
        held_by_servers: Are slots, and the weights, on parameter servers.
        one_copy: Do the replicas of the process share one copy of the weights and of the slots.
    """

    weights: int
    gradients: int
    slots: int
    activations: int
    input: int
    data: Optional[int]
    runtime: int
    replicas: int
    held_by_servers: bool
    one_copy: bool = False

    @property
    def replica(self) -> int:
        """Of one replica."""
        slots = 0 if self.held_by_servers else self.slots
        return self.weights + self.gradients + slots + self.activations + self.input

    @property
    def process(self) -> int:
        """Of one process that trains."""
        shared = (self.replicas - 1) * (self.weights + self.slots) if self.one_copy else 0
        return self.runtime + (self.data or 0) + self.replicas * self.replica - shared


@dataclass(frozen=True)
class Device:
    """Bytes on one of the devices that a network is divided among.

    Args:
        name: As declared, or its number.
        weights: As of Memory, of what is there.
        activations: Likewise, with what others send it.
    """

    name: str
    weights: int
    gradients: int
    slots: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.slots + self.activations


@dataclass(frozen=True)
class Estimate:
    """What a training costs.

    Args:
        replicas: Parts that a global batch is split into.
        batch: Examples of a replica's step.
        parameters: Numbers that are trained.
        forward_flops: Floating-point operations for the loss of one example; a multiplication and its addition are two.
        step_flops: Those of a training step, for one example.
        memory: Of a replica and its process.
        wire: What a step sends.
        unseen: Kinds of operations whose costs are not seen.
        divided: Are parts of the network on several devices of the process.
        devices: What each of these holds.
        counted_as: What of the declaration is counted as something else: of what, as what, and why.
    """

    name: str
    model: str
    strategy: str
    replicas: int
    batch: int
    parameters: int
    forward_flops: float
    step_flops: float
    memory: Memory
    wire: Wire
    unseen: tuple[str, ...] = ()
    divided: bool = False
    devices: tuple[Device, ...] = ()
    counted_as: tuple[str, ...] = ()

    @property
    def fullest(self) -> Optional[Device]:
        """Of the devices that the network is divided among, the one that holds most; None where it is on one."""
        return max(self.devices, key=lambda each: each.total, default=None)

    def notes(self) -> list[str]:
        """Returns what the reader must know before trusting the numbers."""
        notes = list(self.counted_as)
        if self.unseen:
            kinds = ", ".join(self.unseen)
            notes.append(f"What is inside of {kinds} is not counted: memory and FLOPs are higher.")
        if self.divided:
            notes.append("The layers are on several devices: the memory of the replica is that of all together.")
        if self.memory.data is None:
            notes.append("The data set is not prepared: what is kept of it in memory is not counted.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        memory, wire = self.memory, self.wire
        parts = ("weights", "gradients", "slots", "activations", "input", "data", "runtime")
        return {
            "name": self.name,
            "model": self.model,
            "strategy": self.strategy,
            "replicas": self.replicas,
            "batch_per_replica": self.batch,
            "parameters": self.parameters,
            "flops_per_example": {"forward": self.forward_flops, "training": self.step_flops},
            "memory": {
                **{name: getattr(memory, name) for name in parts},
                "replica": memory.replica,
                "replicas_in_process": memory.replicas,
                "process": memory.process,
            },
            "devices": [{**asdict(each), "total": each.total} for each in self.devices],
            "bytes_per_step": {
                "sent_by_worker": wire.sent,
                "total": wire.total,
                "between_devices": wire.between_devices,
                "how": wire.how,
            },
            # Are FLOPs and memory at least so much.
            "lower_bound": bool(self.unseen),
            "notes": self.notes(),
        }


def check_estimable(declaration: Declaration) -> None:
    """Refuses what nothing can be said of.

    Raises:
        DeclarationError: A module file makes its own model and input.
    """
    if file := declaration.trainer.module_file:
        raise DeclarationError(
            f"trainer.module_file: {file}: its functions make their own model, input and batches, out of artifacts of "
            "a pipeline: before one has run, nothing can be said of what they cost",
            expected="trainer.model: a built-in network, or a function of yours",
            todo="name the model; or measure it: tfx-estimator bench strategies, `peak memory`",
        )


def put_together(declaration: Declaration, found: Mapping[str, Any]) -> Estimate:
    """Makes the estimate of a declaration.

    Args:
        found: What the task found, by the names of `components.trainer.dry_run.costs.Costs`.
    """
    trainer = declaration.trainer
    train: TrainStrategy = trainer.distribution.train
    gradients, batch = found["trained_bytes"], found["batch"]
    sync, devices = trainer.sync_every, tuple(_devices(trainer, found))
    memory = Memory(
        weights=found["weight_bytes"],
        gradients=gradients,
        # An outer momentum keeps the weights of the last averaging and how they move; neither is sent.
        slots=found["slot_bytes"] + (2 * gradients if sync is not None and sync.outer_momentum else 0),
        # Some of the gradients are among what is alive at the peak.
        activations=max(found["peak_bytes"] - gradients, 0),
        input=_PREFETCHED * batch * found["example_bytes"],
        data=found["resident_bytes"],
        runtime=found["runtime_bytes"] + _RUNNING_BYTES,
        replicas=train.devices.count,
        held_by_servers=train.asynchronous,
        one_copy=train.traits.one_copy,
    )
    return Estimate(
        name=declaration.name,
        model=trainer.model or "",
        strategy=train.strategy,
        replicas=train.replicas,
        batch=batch,
        parameters=found["parameters"],
        forward_flops=found["forward_flops"] / batch,
        step_flops=found["step_flops"] / batch,
        memory=memory,
        wire=wire_of(
            train,
            found["weight_bytes"],
            gradients,
            found["slot_bytes"],
            sync,
            trainer.path == "estimator",
            trainer.is_divided,
            found["sent_bytes"],
            found["table_bytes"],
        ),
        unseen=tuple(found["unseen"]),
        divided=trainer.is_divided,
        devices=devices,
        counted_as=tuple(_counted_as(trainer, found["table_bytes"])),
    )


def _devices(trainer: TrainerSection, found: Mapping[str, Any]) -> Iterator[Device]:
    """What each device of a divided network holds."""
    section = trainer.model_parallel or trainer.pipeline_parallel
    declared = section.devices if section else ()
    for place, held in enumerate(found["devices"] or ()):
        gradients = held["trained_bytes"]
        # As of the whole: some of the gradients are alive at the peak.
        activations = max(held["peak_bytes"] - gradients, 0)
        name = declared[place] if declared else f"number {place}"
        yield Device(name, held["weight_bytes"], gradients, held["slot_bytes"], activations)


def _counted_as(trainer: TrainerSection, tables: int) -> Iterator[str]:
    """What is counted as something else than was declared, or than is done."""
    if tables and trainer.distribution.train.replicas > 1 and trainer.sync_every is None:
        compressed = ", which nobody compresses" if trainer.distribution.train.gradient_compression != "none" else ""
        yield (
            f"Gradients of embeddings are counted as whole tables{compressed}; on the Keras paths the rows of a batch "
            "are sent."
        )
    if trainer.xla:
        yield "trainer.xla: true is counted as false: XLA does the same FLOPs, and arranges its memory by itself."
