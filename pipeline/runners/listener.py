"""The events that a runner reports; imports no TFX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Protocol

RAN, FAILED, INTERRUPTED, NOT_REACHED = "ran", "failed", "interrupted", "not reached"


@dataclass(frozen=True)
class NodeRun:
    """The result of one component.

    Args:
        state: `ran`, `cached`, `resolved` (of a resolver), `failed`, `interrupted` (by a signal) or `not reached`.
        execution_id: In ML Metadata; None if it failed, or was not reached.
        upstream: The components that it waits for.
        reason: Why it ran and was not cached; empty if unknown.
    """

    node: str
    state: str
    seconds: float
    execution_id: Optional[int]
    upstream: tuple[str, ...] = ()
    reason: str = ""


class Listener(Protocol):
    """Receives the events of a run."""

    def run_started(self, nodes: Sequence[NodeRun]) -> None:
        """The pipeline starts; the components are in order of execution, all `not reached`."""

    def node_started(self, node: str, index: int, total: int) -> None:
        """A component starts; the first has the index 1."""

    def node_ended(self, run: NodeRun) -> None:
        """A component has ended."""
