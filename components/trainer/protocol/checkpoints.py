"""What the supervisor asks of a path's checkpoints."""

from __future__ import annotations

from typing import Optional, Protocol


class Checkpoints(Protocol):
    """The checkpoints in a training folder; made with the folder's path."""

    def drop_damaged(self) -> Optional[int]:
        """Makes the newest whole checkpoint the latest one, so that a damaged last one does not end the next attempt.

        Returns:
            The global step that training goes on from; None if there is no checkpoint.

        Raises:
            TrainingError: A checkpoint can be neither read nor called damaged.
        """

    def tidy(self) -> None:
        """Makes the folder ready to be moved: removes what only the tasks of a cluster needed."""
