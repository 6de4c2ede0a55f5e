"""A training job that is followed, by whoever trains in it or has submitted it: its state, its pods, why it fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Optional

from tfx_estimator.pipeline.base.errors import PipelineError, TaskFailedError, TaskStalledError, TfxEstimatorError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.follow import LostError
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube, TakenError
from tfx_estimator.pipeline.platforms.training_jobs.failures import Failures, Restarts, said_of
from tfx_estimator.pipeline.platforms.training_jobs.kinds import Object, state_of
from tfx_estimator.pipeline.platforms.training_jobs.pods import Pods
from tfx_estimator.pipeline.platforms.training_jobs.watching import (
    DELETED,
    FOUND,
    JOB,
    LISTED,
    LOST,
    POD,
    Notice,
    Watching,
)

# For the pods' ends and logs to arrive after the end of the job.
LAST_WORDS_SECONDS = 5.0
# How long the deletion of an earlier job may take; it goes after its pods.
_DELETED_SECONDS = 600.0
# An API server that has just been restarted may refuse requests for a while, because it does not know its permissions
# yet.
_REFUSED_SECONDS = 30.0
# Nothing is said of a pod that has been starting for less than this.
_NOTICE_SECONDS = 10.0
_POLL_SECONDS, _RETRY_SECONDS = 0.2, 1.0
# The operator leaves a TFJob in this state if one pod failed for good while another one was being restarted.
_RESTARTING = "Restarting"

logger = get_logger("trainer")


def create_or_adopt(
    kube: Kube,
    name: str,
    adopts: Callable[[Object], bool],
    create: Callable[[], Object],
    rest: Optional[Callable[[float], None]] = None,
) -> tuple[Object, bool]:
    """Creates a training job, once one of its name that is not adopted has gone.

    Args:
        adopts: Tells whether one that is there is as good; may refuse one that is somebody else's.
        rest: Waits for so many seconds; None sleeps.

    Returns:
        The job; and whether it was created now.

    Raises:
        LostError: Nobody knows whether it was created.
        PipelineError: It was refused; or an earlier one was deleted, and does not go.
    """
    began, title = time.monotonic(), f"the {kube.kind.name} {kube.namespace}/{name}"
    while True:
        if (there := kube.read(name)) is None:
            # It may be taken by somebody else just now, or by a try whose answer was lost.
            with contextlib.suppress(TakenError):
                return create(), True
        elif adopts(there):
            return there, False
        elif "deletionTimestamp" not in there["metadata"]:
            logger.info(f"{title} of an earlier run is deleted first, with its pods")
            kube.delete(name, there["metadata"]["uid"])
        if time.monotonic() - began > _DELETED_SECONDS:
            raise PipelineError(
                f"{title} of an earlier run was deleted, and is still there",
                expected="its end, and that of its pods",
                todo=f"see which pod, node or finalizer holds it: {kube.kubectl(f'get {kube.kind.plural},pods')}",
            )
        (rest or time.sleep)(_RETRY_SECONDS)


class Following:
    """What was seen of a training job, from the first look on.

    Args:
        there: The job, as the server tells of it.
        folder: For the logs of its pods.
        restarts: Is told of restarts.
        pending_timeout: How many seconds pods may take to start, or to start again.
        runs_pipeline: As of `PodFailure.error`.
    """

    def __init__(
        self,
        kube: Kube,
        there: Object,
        folder: str,
        restarts: Restarts,
        pending_timeout: float,
        runs_pipeline: bool = False,
    ) -> None:
        self._kube, self._timeout, self._runs_pipeline = kube, pending_timeout, runs_pipeline
        self._name, self._uid = there["metadata"]["name"], there["metadata"]["uid"]
        self._kind, self._title = kube.kind, f"the {kube.kind.name} {kube.namespace}/{self._name}"
        self.there, self.is_gone = there, False
        # Whether this process ends it: its pods end by that, and none is started again.
        self.is_cancelled = False
        policy, self._limit = self._kind.restarts(there)
        self._wanted = self._kind.wanted(there)
        self.pods, self.failures = Pods(kube, folder), Failures(policy, restarts, self._kind)
        # Since when not all pods run, and what was said of those that do not.
        self._began = time.monotonic()
        self._said: set[str] = set()
        # For each watch that has lost its server: since when, and the error.
        self._lost: dict[str, tuple[float, Exception]] = {}
        self._watching = Watching(kube, self._name, self._uid)

    @property
    def all_run(self) -> bool:
        """Have all pods that are wanted begun their work, or ended."""
        return self.pods.running >= self._wanted

    def hear(self, seconds: float, with_log: bool = True) -> bool:
        """Takes note of what a watch says next; returns whether it says anything within so many seconds.

        Args:
            with_log: As of `Pods.take`.
        """
        notice = self._watching.next(seconds)
        if notice is not None:
            self.take(notice, with_log)
        if not self.is_cancelled:
            self.failures.settle()
        return notice is not None

    def take(self, notice: Notice, with_log: bool = True) -> None:
        """Takes note of what a watch has said, or a list; likewise."""
        if notice.event == LOST:
            since, _ = self._lost.get(notice.watch, (time.monotonic(), None))
            self._lost[notice.watch] = since, notice.found
            return
        self._lost.pop(notice.watch, None)
        if notice.event == FOUND:
            return
        if notice.watch == JOB:
            mine = [each for each in notice.objects if each["metadata"]["uid"] == self._uid]
            self.is_gone = self.is_gone or not mine or notice.event == DELETED
            self.there = mine[0] if mine else self.there
            return
        if notice.event == LISTED:
            failures = self.pods.take_all(notice.found, with_log)
        else:
            failures = [self.pods.take(notice.found, notice.event == DELETED, with_log)]
        if self.is_cancelled:
            return
        if self.all_run:
            self.failures.all_run()
        for failure in filter(None, failures):
            self.failures.note(failure)

    def lost(self) -> Optional[Exception]:
        """Returns why the server cannot be asked just now; None if it can.

        Raises:
            TfxEstimatorError: It refuses, and has done so for some time.
        """
        for since, error in self._lost.values():
            if not isinstance(error, TfxEstimatorError):
                return error
            if time.monotonic() - since > _REFUSED_SECONDS:
                raise error
            return LostError(error.what)
        return None

    def wait_anew(self) -> None:
        """Waits anew for pods to start: all of them run, or nobody can tell."""
        self._began = time.monotonic()

    def notices(self) -> list[str]:
        """Returns what pods wait for, each reason once, where they have waited for some seconds."""
        if self.all_run or self._waited < _NOTICE_SECONDS:
            return []
        new = [text for text in dict.fromkeys(self.pods.waiting()) if text not in self._said]
        self._said.update(new)
        return [f"waiting for pods: {text}" for text in new]

    def hopeless(self) -> Optional[TfxEstimatorError]:
        """Returns why the job is to be ended that its operator leaves at work; None if it is not."""
        # The operator may be down: a job whose chief has succeeded has succeeded, whatever it still says.
        is_done = self.pods.chief_succeeded
        left = self.failures.lingers and not self._lost and state_of(self.there) == _RESTARTING
        if not is_done and (left or self.failures.restarts > self._limit):
            return self.error()
        # A queue suspends a job until there is room; and a pod that cannot be seen may well have started.
        if (self.all_run and not is_done) or POD in self._lost or self._kind.is_suspended(self.there):
            self.wait_anew()
        elif self._waited > self._timeout:
            self.end(LAST_WORDS_SECONDS)
            return self._stalled()
        return None

    def error(self, condition: Optional[Object] = None) -> TfxEstimatorError:
        """Returns what the job failed by, once the ends of its pods have come, and their logs.

        Args:
            condition: By which the operator has ended it; None if it was not the operator.
        """
        said = said_of(condition or {})
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while condition and not self.failures.is_explained and time.monotonic() < deadline:
            self.hear(_POLL_SECONDS)
        self.end(LAST_WORDS_SECONDS)
        if error := self.failures.error(self._title, condition, self._runs_pipeline):
            return error
        kind = PipelineError if self._runs_pipeline else TaskFailedError
        todo = self._kube.kubectl(f"describe {self._kind.plural} {self._name}")
        return kind(f"{self._title} failed: {said}{self._kind.limits}", expected="one that succeeds", todo=todo)

    def give_up(self, error: TfxEstimatorError) -> TfxEstimatorError:
        """Deletes the job, which nobody else ends; what comes of that is told beside the error, which counts more."""
        try:
            self._kube.delete(self._name, self._uid)
            left = "and it is deleted"
        except (LostError, TfxEstimatorError):
            left = f"which goes on and costs: {self._kube.kubectl(f'delete {self._kind.plural} {self._name}')}"
        error.todo += f"; the operator did not end the {self._kind.name}, {left}"
        return error

    def end(self, seconds: float) -> None:
        """Ends the watches, and lets the logs come to their ends; see `Pods.end`."""
        self._watching.end()
        self.pods.end(seconds)

    @property
    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _stalled(self) -> TaskStalledError:
        reason = "; ".join(self.pods.waiting()) or (
            f"{self.pods.running} of {self._wanted} pods run"
            if self.pods.count()
            else "there are no pods: is its operator running, and does the namespace admit them? see "
            f"`{self._kube.kubectl('get events')}`"
        )
        what = "end after its chief" if self.pods.chief_succeeded else "start"
        return TaskStalledError(
            f"the pods of {self._title} did not {what} for {self._waited:.0f} s: {reason}",
            expected=f"all of them within {self._timeout:g} s ({self._kind.option('pending_timeout')})",
            todo="mend what the pods wait for, or raise the deadline",
        )
