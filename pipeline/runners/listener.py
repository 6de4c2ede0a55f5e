"""What a runner tells of a run; imports no TFX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Protocol

RAN, FAILED, INTERRUPTED, NOT_REACHED = "ran", "failed", "interrupted", "not reached"


@dataclass(frozen=True)
class NodeRun:
    """What became of one component.

    Args:
        state: `ran`, `cached`, `resolved` (a resolver only looks things up), `failed`,
            `interrupted` (by a signal) or `not reached`.
        execution_id: In ML Metadata; None if it failed, or was not reached.
        upstream: The components that it waits for.
        reason: Why one ran, and was not cached; empty if that is not known.
    """

    node: str
    state: str
    seconds: float
    execution_id: Optional[int]
    upstream: tuple[str, ...] = ()
    reason: str = ""


class Listener(Protocol):
    """Hears how a run goes on."""

    def run_started(self, nodes: Sequence[NodeRun]) -> None:
        """The pipeline starts; its components, none of them reached, in the order in which they will run."""

    def node_started(self, node: str, index: int, total: int) -> None:
        """A component starts; the first has the index 1."""

    def node_ended(self, run: NodeRun) -> None:
        """A component has ended."""
