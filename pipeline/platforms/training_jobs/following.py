"""Follows a training job, for a Trainer or for `submit`: its state, its pods, why it fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Optional

from tfx_estimator.pipeline.base.errors import (
    NotStartedError,
    PipelineError,
    TaskFailedError,
    TaskStalledError,
    TfxEstimatorError,
)
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube, TakenError
from tfx_estimator.pipeline.platforms.training_jobs.failures import Failures, Restarts, text_of
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

# Time for the pods' last states and logs to arrive after the job has ended.
LAST_WORDS_SECONDS = 5.0
# How long the foreground deletion of an earlier job may take.
_DELETED_SECONDS = 600.0
# A pod that has been starting for less than this is not reported.
_NOTICE_SECONDS = 10.0
# How far the server's clock may be ahead or behind.
_SKEW_SECONDS = 10.0
_POLL_SECONDS, _RETRY_SECONDS = 0.2, 1.0
# The operator leaves a TFJob in this state if one pod failed permanently while another one was being restarted.
_RESTARTING = "Restarting"

logger = get_logger("trainer")


def create_or_adopt(
    kube: Kube,
    name: str,
    adopts: Callable[[Object], bool],
    create: Callable[[], Object],
    sleep: Optional[Callable[[float], None]] = None,
) -> tuple[Object, bool]:
    """Adopts the training job of this name, or deletes it and creates a new one.

    Args:
        adopts: Returns True if the existing job can be used; may raise if it belongs to someone else.
        sleep: None is `time.sleep`.

    Returns:
        The job, and whether it was created now.

    Raises:
        UnavailableError: It is unknown whether it was created.
        PipelineError: It was refused; or an earlier one is not removed in time.
    """
    began, title = time.monotonic(), f"the {kube.kind.name} {kube.namespace}/{name}"
    while True:
        if (found := kube.read(name)) is None:
            # Another process, or an earlier request whose answer was lost, may have just created it.
            with contextlib.suppress(TakenError):
                return create(), True
        elif adopts(found):
            return found, False
        elif "deletionTimestamp" not in found["metadata"]:
            logger.info(f"{title} of an earlier run is deleted first, with its pods")
            kube.delete(name, found["metadata"]["uid"])
        if time.monotonic() - began > _DELETED_SECONDS:
            raise PipelineError(
                f"{title} of an earlier run was deleted, and still exists",
                expected="the removal of the job and its pods",
                todo=f"see which pod, node or finalizer blocks it: {kube.kubectl(f'get {kube.kind.plural},pods')}",
            )
        (sleep or time.sleep)(_RETRY_SECONDS)


class Following:
    """The observed state of a training job.

    Args:
        found: The job object, as the server returned it.
        folder: For the logs of its pods.
        restarts: Receives the restarts.
        pending_timeout: Seconds that pods may take to start or restart.
        runs_pipeline: As of `PodFailure.error`.
    """

    def __init__(
        self,
        kube: Kube,
        found: Object,
        folder: str,
        restarts: Restarts,
        pending_timeout: float,
        runs_pipeline: bool = False,
    ) -> None:
        self._kube, self._timeout, self._runs_pipeline = kube, pending_timeout, runs_pipeline
        self._name, self._uid = found["metadata"]["name"], found["metadata"]["uid"]
        self._kind, self._title = kube.kind, f"the {kube.kind.name} {kube.namespace}/{self._name}"
        self.object, self.is_gone = found, False
        # True when this process has deleted it: its pods' ends are then no failures.
        self.is_cancelled = False
        policy, self._limit = self._kind.restarts(found)
        self._wanted = self._kind.wanted(found)
        self.pods, self.failures = Pods(kube, folder), Failures(policy, restarts, self._kind)
        # Since when not all pods run, and the notices given of those that do not.
        self._began = time.monotonic()
        self._noticed: set[str] = set()
        # Since when events count, by the server's clock; why pods were not created, and when it was asked last.
        self._since, self._refusal, self._asked = _event_time(), "", self._began
        # The error of each disconnected watch.
        self._outages: dict[str, Exception] = {}
        self._watching = Watching(kube, self._name, self._uid)

    @property
    def all_run(self) -> bool:
        """True if all expected pods run, or have ended."""
        return self.pods.running >= self._wanted

    def poll(self, seconds: float, with_log: bool = True) -> bool:
        """Processes the next event of the watches; returns False if none comes within the given seconds.

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
        """Processes an event of a watch, or a list; `with_log` as of `Pods.take`."""
        if notice.event == LOST:
            self._outages[notice.watch] = notice.found
            return
        self._outages.pop(notice.watch, None)
        if notice.event == FOUND:
            return
        if notice.watch == JOB:
            mine = [each for each in notice.objects if each["metadata"]["uid"] == self._uid]
            self.is_gone = self.is_gone or not mine or notice.event == DELETED
            self.object = mine[0] if mine else self.object
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

    def outage(self) -> Optional[Exception]:
        """Returns the error of a disconnected watch; None if the server answers."""
        return next(iter(self._outages.values()), None)

    def wait_anew(self) -> None:
        """Restarts `pending_timeout`: all pods run, or their state is unknown."""
        self._began, self._since, self._refusal = time.monotonic(), _event_time(), ""

    def notices(self) -> list[str]:
        """Returns what pods have been waiting for, each reason once."""
        if self.all_run or self._waited < _NOTICE_SECONDS:
            return []
        new = [text for text in dict.fromkeys(self._reasons()) if text not in self._noticed]
        self._noticed.update(new)
        return [f"waiting for pods: {text}" for text in new]

    def hopeless(self) -> Optional[TfxEstimatorError]:
        """Returns the error for which a job has to be ended that its operator does not end; None if there is none."""
        # A job whose chief has succeeded has succeeded: the operator that should report it may be down.
        is_done = self.pods.chief_succeeded
        lingers = self.failures.lingers and not self._outages and state_of(self.object) == _RESTARTING
        if not is_done and (lingers or self.failures.restarts > self._limit):
            return self.error()
        # A queue suspends a job until there is capacity; and during an outage pods may have started unnoticed.
        if (self.all_run and not is_done) or POD in self._outages or self._kind.is_suspended(self.object):
            self.wait_anew()
        elif self._waited > self._timeout:
            self.end(LAST_WORDS_SECONDS)
            return self._stalled()
        return None

    def error(self, condition: Optional[Object] = None) -> TfxEstimatorError:
        """Waits for the last states and logs of the pods; returns the error that the job failed with.

        Args:
            condition: The operator's final condition of it; None if the operator did not end it.
        """
        reason = text_of(condition or {})
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while condition and not self.failures.is_explained and time.monotonic() < deadline:
            self.poll(_POLL_SECONDS)
        self.end(LAST_WORDS_SECONDS)
        if error := self.failures.error(self._title, condition, self._runs_pipeline):
            return error
        kind = PipelineError if self._runs_pipeline else TaskFailedError
        todo = self._kube.kubectl(f"describe {self._kind.plural} {self._name}")
        return kind(f"{self._title} failed: {reason}{self._kind.limits}", expected="one that succeeds", todo=todo)

    def give_up(self, error: TfxEstimatorError) -> TfxEstimatorError:
        """Deletes a job that its operator does not end; adds the outcome to the error, which is returned."""
        try:
            self._kube.delete(self._name, self._uid)
            outcome = "and it is deleted"
        except (UnavailableError, TfxEstimatorError):
            outcome = f"which keeps running: {self._kube.kubectl(f'delete {self._kind.plural} {self._name}')}"
        error.todo += f"; the operator did not end the {self._kind.name}, {outcome}"
        return error

    def end(self, seconds: float) -> None:
        """Ends the watches, and waits for the logs; see `Pods.end`."""
        self._watching.end()
        self.pods.end(seconds)

    def _reasons(self) -> list[str]:
        """Returns what the pods wait for, in their own words or in those of what should start them."""
        reasons = [*self.pods.waiting()]
        if not reasons and time.monotonic() - self._asked >= _NOTICE_SECONDS:
            self._asked = time.monotonic()
            self._refusal = self._kube.refusal(self._name, self._since) or self._refusal
        return reasons or [self._refusal] * bool(self._refusal)

    @property
    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _stalled(self) -> TaskStalledError:
        reason = "; ".join(self._reasons()) or (
            f"{self.pods.running} of {self._wanted} pods run"
            if self.pods.count()
            else "there are no pods: is its operator running, and does the namespace admit them? see "
            f"`{self._kube.kubectl('get events')}`"
        )
        is_done = self.pods.chief_succeeded
        what = "end after its chief" if is_done else "start"
        return (TaskStalledError if is_done else NotStartedError)(
            f"the pods of {self._title} did not {what} for {self._waited:.0f} s: {reason}",
            expected=f"all of them within {self._timeout:g} s ({self._kind.option('pending_timeout')})",
            todo="fix what the pods wait for, or raise the timeout",
        )


def _event_time() -> str:
    """Returns the time of now as in events, less the allowed skew."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _SKEW_SECONDS))
