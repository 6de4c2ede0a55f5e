"""For how long the pods of a TFJob have not all run, and what they wait for."""

from __future__ import annotations

import time

from tfx_estimator.components.trainer.tfjob.pods import Pods
from tfx_estimator.pipeline.base.errors import TaskStalledError

# Nothing is said of a pod that has been starting for less than this.
_NOTICE_SECONDS = 10.0


class Pending:
    """Whether pods start, or start again.

    Args:
        pods: As they were last seen.
        wanted: How many there are to be.
        seconds: That are waited for all of them.
    """

    def __init__(self, pods: Pods, wanted: int, seconds: float) -> None:
        self._pods, self._wanted, self._seconds = pods, wanted, seconds
        # Since when not all pods run.
        self._began = time.monotonic()
        self._said: set[str] = set()

    @property
    def all_run(self) -> bool:
        """Have all pods that are wanted begun their work, or ended."""
        return self._pods.running >= self._wanted

    @property
    def is_over(self) -> bool:
        """Has the wait for them been long enough."""
        return self._waited > self._seconds

    def begin(self) -> None:
        """Waits anew: all of them run, or nobody can tell."""
        self._began = time.monotonic()

    def notices(self) -> list[str]:
        """Returns what pods wait for, each reason once, where they have waited for some seconds."""
        if self._waited < _NOTICE_SECONDS:
            return []
        new = [text for text in dict.fromkeys(self._pods.waiting()) if text not in self._said]
        self._said.update(new)
        return [f"waiting for pods: {text}" for text in new]

    def error(self, place: str, events: str) -> TaskStalledError:
        """Returns the error of a wait that is over.

        Args:
            events: A command that tells the namespace's events.
        """
        reason = "; ".join(self._pods.waiting()) or (
            f"{self._pods.running} of {self._wanted} pods run"
            if self._pods.count()
            else "there are no pods: is the training operator running, and does the namespace admit them? see "
            f"`{events}`"
        )
        return TaskStalledError(
            f"the pods of the TFJob {place} did not start for {self._waited:.0f} s: {reason}",
            expected=f"all of them within {self._seconds:g} s (deploy.tfjob.pending_timeout)",
            todo="mend what the pods wait for, or raise the deadline",
        )

    @property
    def _waited(self) -> float:
        return time.monotonic() - self._began
