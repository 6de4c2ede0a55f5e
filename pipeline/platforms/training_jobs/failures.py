"""Why pods fail, and what that comes to: restarts, each with its cause, or the error that the training ends with."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.training_jobs.kinds import EXIT_CODE, Kind
from tfx_estimator.pipeline.platforms.training_jobs.manifest import RETRYABLE_CODE

# How long to look for the cause if a pod only reports that another one has gone; and how long failures count as
# consequences of one that was noted.
_CAUSE_SECONDS, _CONSEQUENCE_SECONDS = 8.0, 120.0
# How long its operator may take to end a TFJob after a pod has failed for good. It never does if another pod was just
# restarted: the TFJob then stays Restarting.
# Source: https://github.com/kubeflow/trainer/blob/v1.8.1/pkg/controller.v1/tensorflow/tfjob_controller.go.
FINAL_SECONDS = 30.0
_RETRYABLE_FROM = 128
_WHAT = "its pod, and what hung on it, was started again"

_LOG_LINES = 15
# Errors whose exit codes say more than that a task has failed.
_KINDS = (
    errors.DeclarationError,
    errors.DataError,
    errors.UserCodeError,
    errors.PipelineError,
    errors.NotBlessedError,
)
_BY_CODE: dict[Optional[int], type[errors.TfxEstimatorError]] = {kind.exit_code: kind for kind in _KINDS}

logger = get_logger("trainer")


@dataclass(frozen=True)
class PodFailure:
    """Why a pod failed.

    Args:
        task: For example `worker-0`.
        code: The container's exit code; None if there was no container.
        reason: In Kubernetes' words: `Error`, `OOMKilled`, `Evicted`.
        message: What the container left, or the end of its log.
        log: Path of its log here.
    """

    task: str
    pod: str
    code: Optional[int]
    reason: str
    message: str
    log: str

    @property
    def from_peer(self) -> bool:
        """Is it only the consequence of another pod's end."""
        # A task that is asked to stop asks the others as well.
        return self.code in (RETRYABLE_CODE, errors.SIGNALLED + signal.SIGTERM)

    @property
    def cause(self) -> str:
        """What happened, in a few words."""
        if self.reason not in ("", "Error"):
            return f"ended: {self.reason}" + (f" (exit code {self.code})" if self.code is not None else "")
        if self.from_peer and (said := self._left_error()):
            return f"failed: {(said['what'].splitlines() or [''])[0][:120]}"
        if self.code is None or self.code <= errors.SIGNALLED or self.code == RETRYABLE_CODE:
            return f"ended with exit code {self.code}"
        number = self.code - errors.SIGNALLED
        known = number in {each.value for each in signal.Signals}
        return f"was killed by {signal.Signals(number).name if known else f'signal {number}'}"

    def error(self, kind: Kind, runs_pipeline: bool = False) -> errors.TfxEstimatorError:
        """Returns the pod's own error.

        Args:
            kind: Of its job.
            runs_pipeline: Whether its command is `tfx-estimator run`, whose exit code tells what was wrong.
        """
        where = f"the log of the pod {self.pod}: {self.log}"
        if said := self._left_error():
            told = errors.from_json(said) or errors.TaskFailedError(
                said["what"], expected=said["expected"], todo=said["todo"]
            )
            told.todo = f"{told.todo}; {where}" if told.todo else f"see {where}"
            return told
        lines = self.message.splitlines()[-_LOG_LINES:] or read_tail(self.log, _LOG_LINES)
        end = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        todo = f"see {where}"
        if self.reason == "OOMKilled":
            memory = kind.option(f"replicas.{kind.role(self.task.partition('-')[0])}.memory_gb")
            todo = f"raise {memory}; {where}"
        made = _BY_CODE.get(self.code, errors.TaskFailedError) if runs_pipeline else errors.TaskFailedError
        return made(f"the pod {self.pod} {self.cause}; its log ends with:\n{end}", todo=todo)

    def _left_error(self) -> Optional[dict[str, Any]]:
        try:
            said = json.loads(self.message)
        except ValueError:
            return None
        return said if isinstance(said, dict) and {"type", "what", "expected", "todo"} <= said.keys() else None


class Restarts(Protocol):
    """Who is told of restarts."""

    # When a restart was last noted, here or by a pod's supervisor.
    noted_at: float

    def restarted(self, cause: str, what: str) -> None:
        """See `Progress.restarted`."""


class Failures:
    """The failures of a training job's pods.

    Args:
        policy: As of `Kind.restarts`.
        progress: Is told of the restarts.
        kind: Of the job.
    """

    def __init__(self, policy: str, progress: Restarts, kind: Kind) -> None:
        self._policy, self._progress, self._kind = policy, progress, kind
        self._all: list[PodFailure] = []
        self._suspect: Optional[tuple[float, PodFailure]] = None
        self._cause_at = -math.inf
        self._final_at = math.inf
        # Whether all pods have run since the last restart.
        self._complete = False
        self.restarts = 0

    def all_run(self) -> None:
        """Takes note of it that all pods that are wanted run, or have run."""
        self._complete = True

    def note(self, failure: PodFailure) -> None:
        """Takes note of one; where it is no mere consequence of another, it is a restart.

        Nor is it one where a pod has gone for want of one that has not come yet: for how long that is waited for is
        pending_timeout's to say.
        """
        self._all.append(failure)
        if self._policy == EXIT_CODE and _is_final(failure):
            self._final_at = min(self._final_at, time.monotonic())
            return
        if self._policy == "Never":
            return
        if not failure.from_peer:
            self._suspect = None
            self._restarted(failure)
        elif not self._complete:
            logger.info(f"{failure.task} {failure.cause}, and is started again: not all pods run yet")
        elif self._suspect is None and time.monotonic() - self._cause_at > _CONSEQUENCE_SECONDS:
            self._suspect = (time.monotonic(), failure)

    def settle(self) -> None:
        """A pod says that another one has gone, and none has: then it is the one."""
        if self._suspect is None:
            return
        since, failure = self._suspect
        if self._progress.noted_at > since:
            self._suspect = None
        elif time.monotonic() - since > _CAUSE_SECONDS:
            self._suspect = None
            self._restarted(failure)

    @property
    def lingers(self) -> bool:
        """Should the job have ended, if it is Restarting: a pod has failed for good, and some time ago."""
        return time.monotonic() - self._final_at > FINAL_SECONDS

    @property
    def is_explained(self) -> bool:
        """Has a pod failed in a way after which none is restarted."""
        return any(map(_is_final, self._all))

    def error(
        self, name: str, condition: Optional[Mapping[str, Any]] = None, runs_pipeline: bool = False
    ) -> Optional[TfxEstimatorError]:
        """Returns what the training failed by; None if no pod has failed.

        Args:
            condition: By which the operator has ended it; None if it was not the operator.
            runs_pipeline: As of `PodFailure.error`.
        """
        final = [each for each in self._all if _is_final(each)]
        causes = final or [each for each in self._all if not each.from_peer] or self._all
        if not causes:
            return None
        error = causes[-1].error(self._kind, runs_pipeline)
        if not final:
            error.what = f"{self._why(name, condition)}: {error.what}"
        return error

    def _why(self, name: str, condition: Optional[Mapping[str, Any]]) -> str:
        """Says why a job has ended whose pods would have been started again."""
        if condition is None:
            return f"{name} was not started again ({self._kind.option('backoff_limit')})"
        said = said_of(condition)
        return f"{name} failed: {said}{self._kind.limits}; the last pod that had failed before"

    def _restarted(self, failure: PodFailure) -> None:
        self._cause_at = time.monotonic()
        self._complete = False
        self.restarts += 1
        self._progress.restarted(f"{failure.task} {failure.cause}", _WHAT)


def said_of(condition: Mapping[str, Any]) -> str:
    """Returns the operator's words of a condition."""
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"


def _is_final(failure: PodFailure) -> bool:
    return failure.code is not None and failure.code < _RETRYABLE_FROM
