"""Shows an estimate as lines of text."""

from __future__ import annotations

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.estimate.estimate import Estimate

_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEP = 1024
_THOUSANDS = ("", "k", "M", "G", "T", "P")


def lines(found: Estimate) -> list[str]:
    """Returns the lines that are printed."""
    memory, wire = found.memory, found.wire
    spread = f"{found.replicas} replicas" if found.replicas > 1 else "1 replica"
    kept = "unknown" if memory.data is None else size(memory.data)
    slots = size(memory.slots) + (", on the parameter servers" if memory.held_by_servers else "")
    # What is not counted comes on top.
    least = "≥ " if found.unseen else ""
    shared = ", which share weights and slots" if memory.one_copy and memory.replicas > 1 else ""
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
        *_fullest(found),
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


def _fullest(found: Estimate) -> list[tuple[str, str]]:
    """Of the devices that a network is divided among."""
    device = found.fullest
    if device is None:
        return []
    parts = ("weights", "gradients", "slots", "activations")
    told = ", ".join(f"{name} {size(getattr(device, name))}" for name in parts)
    return [("memory of the fullest device", f"{size(device.total)}, on {device.name}: {told}")]


def size(number: float) -> str:
    """Writes bytes as a person does: `1.3 MB`.

    Args:
        number: Bytes.
    """
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
