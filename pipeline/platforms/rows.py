"""A row of the table of resources: one for each step of a compiled pipeline, and for the machines that one starts."""

from __future__ import annotations

from typing import Any, NamedTuple

_OWN = "the service's own"
_CORES, _MEMORY = ("cpu", "memory")


class Row(NamedTuple):
    """The resources of one step, or of several equal machines.

    Args:
        step: Its name, or the number and role of the machines.
        machine: Its type, or its limits of CPUs and memory.
        accelerator: Empty for none.
    """

    step: str
    machine: str
    accelerator: str
    image: str


def row_of(name: str, container: dict[str, Any]) -> Row:
    """Returns the row of a Kubernetes container."""
    limits = dict(container.get("resources", {}).get("limits", {}))
    cores, memory = (limits.pop(key, None) for key in (_CORES, _MEMORY))
    # `manifest` writes CPUs in thousandths, and memory in 10^6 bytes.
    amounts = amounts_of(
        float(str(cores).removesuffix("m")) / 1000 if cores else None,
        f"{float(str(memory).removesuffix('M')) / 1000:g} GB" if memory else "",
    )
    kinds = ", ".join(accelerator_of(kind, count) for kind, count in limits.items())
    return Row(name, amounts, kinds, container["image"])


def amounts_of(cores: Any, memory: str) -> str:
    """Returns a text with the number of CPUs and the memory."""
    return ", ".join(filter(None, (f"{cores:g} CPUs" if cores else "", memory))) or _OWN


def accelerator_of(kind: Any, count: Any) -> str:
    """Returns a text with the number and type of accelerators; empty for none."""
    return f"{int(count or 1)} {kind}" if kind else ""
