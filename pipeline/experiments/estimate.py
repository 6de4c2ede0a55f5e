"""Estimates a training's costs per replica, per process and between processes; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Batches that the input prefetches during a step: see `data.input_fn`.
_PREFETCHED = 2
# Memory that running a graph adds to building it: threads, and the kernels' code and constants. Measured.
_RUNNING_BYTES = 45 << 20
_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEP = 1024
_THOUSANDS = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True)
class Memory:
    """Memory of a training, in bytes."""

    weights: int  # of the model's variables
    gradients: int  # of the trainable variables
    slots: int
    # Further memory at a step's peak: its batch, layer outputs, copies of oneDNN.
    activations: int
    input: int  # prefetched batches
    data: Optional[int]  # training files kept in memory; None if their number is unknown
    runtime: int  # of a process before it trains
    replicas: int
    held_by_servers: bool  # whether slots and weights are on parameter servers
    one_copy: bool = False  # whether the replicas of the process share one copy of weights and slots

    @property
    def replica(self) -> int:
        """Memory of one replica."""
        slots = 0 if self.held_by_servers else self.slots
        return self.weights + self.gradients + slots + self.activations + self.input

    @property
    def process(self) -> int:
        """Memory of one training process."""
        shared = (self.replicas - 1) * (self.weights + self.slots) if self.one_copy else 0
        return self.runtime + (self.data or 0) + self.replicas * self.replica - shared


@dataclass(frozen=True)
class Device:
    """Memory of one of the devices that a network is divided among, in bytes; see Memory."""

    name: str  # the declared one, or its number
    weights: int
    gradients: int
    slots: int
    activations: int  # received ones included

    @property
    def total(self) -> int:
        """Sum of all."""
        return self.weights + self.gradients + self.slots + self.activations


@dataclass(frozen=True)
class Wire:
    """Communication in one step."""

    sent: int = 0  # bytes that one training process sends, or receives if that is more
    total: int = 0  # bytes of all processes, parameter servers included, each byte counted once
    between_devices: int = 0  # bytes between the devices of one process
    how: str = "nothing: there is one device"  # description


@dataclass(frozen=True)
class Estimate:
    """Costs of a training."""

    name: str
    model: str
    strategy: str
    replicas: int  # parts of a global batch
    batch: int  # examples per replica and step
    parameters: int  # trainable numbers
    # Floating-point operations for the loss of one example; a multiply-add counts as two.
    forward_flops: float
    step_flops: float  # of a training step, per example
    memory: Memory  # of a replica and its process
    wire: Wire
    unseen: tuple[str, ...] = ()  # types of operations whose costs are unknown
    devices: tuple[Device, ...] = ()  # those that the network is divided among
    counted_as: tuple[str, ...] = ()  # notes on declared options that are counted as something else

    def notes(self) -> list[str]:
        """Returns limits of the numbers, a sentence each."""
        notes = list(self.counted_as)
        if self.unseen:
            kinds = ", ".join(self.unseen)
            notes.append(f"The operations inside {kinds} are not counted: memory and FLOPs are higher.")
        if self.devices:
            notes.append("The layers are on several devices: the memory of the replica is the sum over them.")
        if self.memory.data is None:
            notes.append("The number of examples is not known yet: those that are kept in memory are not counted.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Returns the estimate for JSON."""
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
            # Whether FLOPs and memory are lower bounds.
            "lower_bound": bool(self.unseen),
            "notes": self.notes(),
        }


def check_estimable(declaration: Declaration) -> None:
    """Raises DeclarationError for a module file, which makes its own model and input."""
    if file := declaration.trainer.module_file:
        raise DeclarationError(
            f"trainer.module_file: {file}: its functions make their own model, input and batches from a pipeline's "
            "artifacts: their costs are unknown before it has run",
            expected="trainer.model: a built-in network, or a function of yours",
            todo="name the model; or measure it: tfx-estimator bench strategies, `peak memory`",
        )


def make_estimate(declaration: Declaration, found: Mapping[str, Any]) -> Estimate:
    """Makes the estimate from the task's result, the fields of `components.trainer.dry_run.costs.Costs`."""
    trainer = declaration.trainer
    train: TrainStrategy = trainer.distribution.train
    gradients, batch = found["trained_bytes"], found["batch"]
    sync = trainer.sync_every
    memory = Memory(
        weights=found["weight_bytes"],
        gradients=gradients,
        # An outer momentum keeps the last averaged weights and their velocity; neither is sent.
        slots=found["slot_bytes"] + (2 * gradients if sync is not None and sync.outer_momentum else 0),
        # Some of the gradients are alive at the peak.
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
        counted_as=tuple(_counted_as(trainer, found)),
    )


def _devices(trainer: TrainerSection, found: Mapping[str, Any]) -> Iterator[Device]:
    """Yields the memory of each device of a divided network."""
    section = trainer.model_parallel or trainer.pipeline_parallel
    declared = section.devices if section else ()
    for place, held in enumerate(found["devices"] or ()):
        gradients = held["trained_bytes"]
        # As in the whole network, some of the gradients are alive at the peak.
        activations = max(held["peak_bytes"] - gradients, 0)
        name = declared[place] if declared else f"number {place}"
        yield Device(name, held["weight_bytes"], gradients, held["slot_bytes"], activations)


def _counted_as(trainer: TrainerSection, found: Mapping[str, Any]) -> Iterator[str]:
    """Yields notes on what is counted as something else."""
    if rows := found["first_rows"]:
        yield f"Words and categories are counted in the table's first {rows:,} rows: more of them take more weights."
    if found["table_bytes"] and trainer.distribution.train.replicas > 1 and trainer.sync_every is None:
        compressed = ", without compression" if trainer.distribution.train.gradient_compression != "none" else ""
        yield (
            f"Gradients of embeddings are counted as whole tables{compressed}; on the Keras paths the rows of a batch "
            "are sent."
        )
    if trainer.xla:
        yield "trainer.xla: true is counted as false: XLA needs the same FLOPs, but plans its memory differently."


def wire_of(trainer: TrainerSection, found: Mapping[str, Any]) -> Wire:
    """Counts the bytes sent in one step; in a ring of n each member sends 2 (n - 1) / n of the gradients."""
    train: TrainStrategy = trainer.distribution.train
    devices, what, sync = train.devices.count, "the gradients", trainer.sync_every
    weights, gradients = found["weight_bytes"], found["trained_bytes"]
    if train.gradient_compression != "none":
        # Gradients of embeddings are not compressed.
        gradients -= (gradients - found["table_bytes"]) // 2
    if sync is not None:
        # The trainable weights have the same size as their gradients.
        gradients = (gradients + found["slot_bytes"]) // sync.steps
        what = f"the weights and slots once in {sync.steps} steps"
    local = 2 * (devices - 1) * gradients
    if train.asynchronous:
        # On the Keras paths the chief only schedules steps; an Estimator's chief trains as well.
        workers = train.worker_count - (trainer.path != "estimator")
        each = weights + gradients
        return Wire(weights, workers * each, 0, "each worker pulls the weights and pushes its gradients")
    if train.is_collective:
        workers = train.worker_count
        total = 2 * (workers - 1) * gradients
        ring = f"a ring all-reduce of {what}: 2 (n - 1) / n of them from each worker"
        return Wire(total // workers, total, workers * local, ring)
    if devices > 1 and train.traits.one_copy:
        how = "each device reads the weights from the host and sends it its gradients"
        return Wire(0, 0, devices * (weights + gradients), how)
    if devices > 1:
        return Wire(0, 0, local, "gradients to one device and their sum back, or a ring of as many bytes")
    if trainer.is_divided:
        return Wire(0, 0, found["sent_bytes"], "nothing: there is one process")
    return Wire()


def lines(found: Estimate) -> list[str]:
    """Returns the lines to print."""
    memory, wire = found.memory, found.wire
    spread = f"{found.replicas} replicas" if found.replicas > 1 else "1 replica"
    kept = "unknown" if memory.data is None else size(memory.data)
    slots = size(memory.slots) + (", on the parameter servers" if memory.held_by_servers else "")
    # Uncounted operations add to it.
    least = "≥ " if found.unseen else ""
    shared = ", which share weights and slots" if memory.one_copy and memory.replicas > 1 else ""
    fullest = []
    if device := max(found.devices, key=lambda each: each.total, default=None):
        parts = ("weights", "gradients", "slots", "activations")
        details = ", ".join(f"{name} {size(getattr(device, name))}" for name in parts)
        fullest = [("memory of the fullest device", f"{size(device.total)}, on {device.name}: {details}")]
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
    """Formats a number of bytes: `1.3 MB`."""
    for unit in _UNITS[:-1]:
        # 1,023.7 is shown as 1,024.
        if number < _STEP - 0.5:
            return f"{number:,.0f} {unit}" if unit == _UNITS[0] or number >= 10 else f"{number:,.1f} {unit}"
        number /= _STEP
    return f"{number:,.1f} {_UNITS[-1]}"


def count(number: float) -> str:
    """Formats a large number: `2.3 M`."""
    for unit in _THOUSANDS[:-1]:
        # 999.6 is shown as 1,000.
        if number < 999.5:
            return f"{number:,.3g} {unit}".rstrip()
        number /= 1000
    return f"{number:,.3g} {_THOUSANDS[-1]}"
