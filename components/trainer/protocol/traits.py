"""What the supervisor must know of a way of training, without importing it, and what it asks of its checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Optional, Protocol

from tfx_estimator.components.trainer.protocol.task_spec import PS


@dataclasses.dataclass(frozen=True)
class PathTraits:
    """How a path behaves under a declared distribution.

    Args:
        exporter: Type of the task that exports the model: one that trains, an evaluator, or a task of its own that is
            started after the cluster.
        alone: Types of the tasks that are started again alone; when another one fails, all are.
        serving: Types of the tasks that serve the chief, and never end by themselves.
        synchronous: Do the tasks of a cluster do each step together, so that they must stop at the same one.
        needs_check: Is the user's code tried under several replicas before it trains.
    """

    exporter: str
    alone: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset({PS})
    synchronous: bool = False
    needs_check: bool = False


def step_of(path: Optional[str]) -> int:
    """Returns the global step that a checkpoint's name tells; 0 for none, -1 where the name tells none."""
    step = path.rsplit("-", 1)[-1] if path else "0"
    return int(step) if step.isdigit() else -1


class Checkpoints(Protocol):
    """The checkpoints in a training folder; made with the folder's path."""

    def drop_damaged(self) -> Optional[int]:
        """Makes the newest whole checkpoint the latest one, so that a damaged last one does not end the next attempt.

        Returns:
            The global step that training goes on from; None if there is no checkpoint.
        """

    def tidy(self) -> None:
        """Makes the folder ready to be moved: removes what only the tasks of a cluster needed."""
