"""What a training costs: of a replica, of a process, and between processes; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Batches that the input makes ready beside the one that is trained: see `data.input_fn`.
_PREFETCHED = 2
# What running a graph adds to having built it: threads, and the kernels' own code and constants. Measured.
_RUNNING_BYTES = 45 << 20
_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEP = 1024
_THOUSANDS = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    weights: int  # of the model's variables
    gradients: int  # of those that are trained
    slots: int
    # What a step holds beside those at its peak: its batch, what layers put out, copies of oneDNN.
    activations: int
    input: int  # batches that are made ready
    data: Optional[int]  # training files that are kept in memory; None where the data set is not there yet
    runtime: int  # of a process before it trains
    replicas: int
    held_by_servers: bool  # are slots, and the weights, on parameter servers
    one_copy: bool = False  # do the replicas of the process share one copy of the weights and of the slots

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
    """Bytes on one of the devices that a network is divided among, as of Memory."""

    name: str  # as declared, or its number
    weights: int
    gradients: int
    slots: int
    activations: int  # with what others send it

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.slots + self.activations


@dataclass(frozen=True)
class Wire:
    """What is sent in one step."""

    sent: int = 0  # bytes that one process that trains sends to others, or takes from them if that is more
    total: int = 0  # the same of all processes together, parameter servers included, each byte counted once
    between_devices: int = 0  # bytes between the devices of one process
    how: str = "nothing: there is one device"  # what is sent, in words


@dataclass(frozen=True)
class Estimate:
    """What a training costs."""

    name: str
    model: str
    strategy: str
    replicas: int  # parts that a global batch is split into
    batch: int  # examples of a replica's step
    parameters: int  # numbers that are trained
    # Floating-point operations for the loss of one example; a multiplication and its addition are two.
    forward_flops: float
    step_flops: float  # those of a training step, for one example
    memory: Memory  # of a replica and its process
    wire: Wire  # what a step sends
    unseen: tuple[str, ...] = ()  # kinds of operations whose costs are not seen
    devices: tuple[Device, ...] = ()  # what each holds that a part of the network is on
    counted_as: tuple[str, ...] = ()  # what of the declaration is counted as something else, and why

    def notes(self) -> list[str]:
        """Returns what the reader must know before trusting the numbers."""
        notes = list(self.counted_as)
        if self.unseen:
            kinds = ", ".join(self.unseen)
            notes.append(f"What is inside of {kinds} is not counted: memory and FLOPs are higher.")
        if self.devices:
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
    """Refuses a module file, which makes its own model and input."""
    if file := declaration.trainer.module_file:
        raise DeclarationError(
            f"trainer.module_file: {file}: its functions make their own model, input and batches, out of artifacts of "
            "a pipeline: before one has run, nothing can be said of what they cost",
            expected="trainer.model: a built-in network, or a function of yours",
            todo="name the model; or measure it: tfx-estimator bench strategies, `peak memory`",
        )


def put_together(declaration: Declaration, found: Mapping[str, Any]) -> Estimate:
    """Makes the estimate of what the task found, by the names of `components.trainer.dry_run.costs.Costs`."""
    trainer = declaration.trainer
    train: TrainStrategy = trainer.distribution.train
    gradients, batch = found["trained_bytes"], found["batch"]
    sync = trainer.sync_every
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
        wire=wire_of(trainer, found),
        unseen=tuple(found["unseen"]),
        devices=tuple(_devices(trainer, found)),
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


def wire_of(trainer: TrainerSection, found: Mapping[str, Any]) -> Wire:
    """Counts the bytes of one step; a ring of n sends 2 (n - 1) / n of the gradients from each of its members."""
    train: TrainStrategy = trainer.distribution.train
    devices, what, sync = train.devices.count, "the gradients", trainer.sync_every
    weights, gradients = found["weight_bytes"], found["trained_bytes"]
    if train.gradient_compression != "none":
        # Those of embeddings are not compressed.
        gradients -= (gradients - found["table_bytes"]) // 2
    if sync is not None:
        # As many bytes as the weights that are trained have.
        gradients = (gradients + found["slot_bytes"]) // sync.steps
        what = f"the weights and slots once in {sync.steps} steps"
    local = 2 * (devices - 1) * gradients
    if train.asynchronous:
        # On the Keras paths the chief hands steps out; an Estimator's does steps as well.
        workers = train.worker_count - (trainer.path != "estimator")
        each = weights + gradients
        return Wire(weights, workers * each, 0, "each worker pulls the weights, and pushes its gradients")
    if train.is_collective:
        workers = train.worker_count
        total = 2 * (workers - 1) * gradients
        ring = f"a ring all-reduce of {what}: 2 (n - 1) / n of them from each worker"
        return Wire(total // workers, total, workers * local, ring)
    if devices > 1 and train.traits.one_copy:
        how = "each device reads the weights from the host, and sends it its gradients"
        return Wire(0, 0, devices * (weights + gradients), how)
    if devices > 1:
        return Wire(0, 0, local, "gradients to one device and their sum back, or a ring of as many bytes")
    if trainer.is_divided:
        return Wire(0, 0, found["sent_bytes"], "nothing: there is one process")
    return Wire()


def lines(found: Estimate) -> list[str]:
    """Returns the lines that are printed."""
    memory, wire = found.memory, found.wire
    spread = f"{found.replicas} replicas" if found.replicas > 1 else "1 replica"
    kept = "unknown" if memory.data is None else size(memory.data)
    slots = size(memory.slots) + (", on the parameter servers" if memory.held_by_servers else "")
    # What is not counted comes on top.
    least = "≥ " if found.unseen else ""
    shared = ", which share weights and slots" if memory.one_copy and memory.replicas > 1 else ""
    fullest = []
    if device := max(found.devices, key=lambda each: each.total, default=None):
        parts = ("weights", "gradients", "slots", "activations")
        told = ", ".join(f"{name} {size(getattr(device, name))}" for name in parts)
        fullest = [("memory of the fullest device", f"{size(device.total)}, on {device.name}: {told}")]
    rows = [
        ("model", f"{found.model}, {found.strategy}, {spread} with batches of {found.batch:,}"),
        ("parameters", f"{found.parameters:,}"),
        (
            "FLOPs per example",
            f"{least}{count(found.forward_flops)} forward, {least}{count(found.step_flops)} in training",
        ),
        ("", ""),
        ("memory of a replica", least + size(memory.replica)),
        ("  weights", size(memory.weights)),
        ("  gradients", size(memory.gradients)),
        ("  optimizer's slots", slots),
        ("  activations", least + size(memory.activations)),
        ("  input", size(memory.input)),
        *fullest,
        ("memory of a process", f"{least}{size(memory.process)}, with {memory.replicas} of them{shared}"),
        ("  Python, TensorFlow, TFX", size(memory.runtime)),
        ("  data kept in memory", kept),
        ("", ""),
        ("sent in a step", f"{size(wire.sent)} by each worker, {size(wire.total)} in all: {wire.how}"),
    ]
    if wire.between_devices:
        rows.append(("between devices", f"{size(wire.between_devices)} a step"))
    width = max(len(title) for title, _ in rows)
    shown = [f"{title:<{width}}  {one_line(text)}".rstrip() for title, text in rows]
    return [*shown, *(f"note: {one_line(note)}" for note in found.notes())]


def size(number: float) -> str:
    """Writes bytes as a person does: `1.3 MB`."""
    for unit in _UNITS[:-1]:
        # 1,023.7 is shown as 1,024.
        if number < _STEP - 0.5:
            return f"{number:,.0f} {unit}" if unit == _UNITS[0] or number >= 10 else f"{number:,.1f} {unit}"
        number /= _STEP
    return f"{number:,.1f} {_UNITS[-1]}"


def count(number: float) -> str:
    """Writes a large number as a person does: `2.3 M`."""
    for unit in _THOUSANDS[:-1]:
        # 999.6 is shown as 1,000.
        if number < 999.5:
            return f"{number:,.3g} {unit}".rstrip()
        number /= 1000
    return f"{number:,.3g} {_THOUSANDS[-1]}"
