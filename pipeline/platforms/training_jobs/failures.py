"""Why pods fail, and the consequence: a restart with its cause, or the error that ends the training."""

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

# How long to wait for the cause if a pod only reports that it lost another one; and how long further failures count as
# consequences of a recorded one.
_CAUSE_SECONDS, _CONSEQUENCE_SECONDS = 8.0, 120.0
# How long the operator may take to end a TFJob after a pod has failed permanently. It never does if another pod was
# just restarted: the TFJob then stays Restarting.
# Source: https://github.com/kubeflow/trainer/blob/v1.8.1/pkg/controller.v1/tensorflow/tfjob_controller.go.
FINAL_SECONDS = 30.0
_RETRYABLE_FROM = 128
_WHAT = "its pod, and those that depend on it, were restarted"

_LOG_LINES = 15
# Errors whose exit codes tell more than that a task has failed.
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
        reason: As of Kubernetes: `Error`, `OOMKilled`, `Evicted`.
        message: The container's termination message, or the end of its log.
        log: Local path of its log.
    """

    task: str
    pod: str
    code: Optional[int]
    reason: str
    message: str
    log: str

    @property
    def from_peer(self) -> bool:
        """True if it is only the consequence of another pod's end."""
        # A task that receives SIGTERM stops the others as well.
        return self.code in (RETRYABLE_CODE, errors.SIGNALLED + signal.SIGTERM)

    @property
    def cause(self) -> str:
        """A short description."""
        if self.reason not in ("", "Error"):
            return f"ended: {self.reason}" + (f" (exit code {self.code})" if self.code is not None else "")
        if self.from_peer and (fields := self._error_fields()):
            return f"failed: {(fields['what'].splitlines() or [''])[0][:120]}"
        if self.code is None or self.code <= errors.SIGNALLED or self.code == RETRYABLE_CODE:
            return f"ended with exit code {self.code}"
        number = self.code - errors.SIGNALLED
        known = number in {each.value for each in signal.Signals}
        return f"was killed by {signal.Signals(number).name if known else f'signal {number}'}"

    def error(self, kind: Kind, runs_pipeline: bool = False) -> errors.TfxEstimatorError:
        """Returns the pod's own error.

        Args:
            kind: Of its job.
            runs_pipeline: Whether its command is `tfx-estimator run`, whose exit code gives the kind of error.
        """
        where = f"the log of the pod {self.pod}: {self.log}"
        if fields := self._error_fields():
            error = errors.from_json(fields) or errors.TaskFailedError(
                fields["what"], expected=fields["expected"], todo=fields["todo"]
            )
            error.todo = f"{error.todo}; {where}" if error.todo else f"see {where}"
            return error
        lines = self.message.splitlines()[-_LOG_LINES:] or read_tail(self.log, _LOG_LINES)
        end = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        todo = f"see {where}"
        if self.reason == "OOMKilled":
            memory = kind.option(f"replicas.{kind.role(self.task.partition('-')[0])}.memory_gb")
            todo = f"raise {memory}; {where}"
        error_type = _BY_CODE.get(self.code, errors.TaskFailedError) if runs_pipeline else errors.TaskFailedError
        return error_type(f"the pod {self.pod} {self.cause}; its log ends with:\n{end}", todo=todo)

    def _error_fields(self) -> Optional[dict[str, Any]]:
        try:
            fields = json.loads(self.message)
        except ValueError:
            return None
        return fields if isinstance(fields, dict) and {"type", "what", "expected", "todo"} <= fields.keys() else None


class Restarts(Protocol):
    """A receiver of restarts."""

    # When a restart was last recorded, here or by a pod's supervisor.
    noted_at: float

    def restarted(self, cause: str, what: str) -> None:
        """See `Progress.restarted`."""


class Failures:
    """The failures of a training job's pods.

    Args:
        policy: As of `Kind.restarts`.
        progress: Receives the restarts.
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
        """Records that all expected pods run, or have run."""
        self._complete = True

    def note(self, failure: PodFailure) -> None:
        """Records a failure, as a restart unless it is only the consequence of another one.

        Nor if the pod failed because another one has not started yet: pending_timeout limits that wait.
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
            logger.info(f"{failure.task} {failure.cause}, and is restarted: not all pods run yet")
        elif self._suspect is None and time.monotonic() - self._cause_at > _CONSEQUENCE_SECONDS:
            self._suspect = (time.monotonic(), failure)

    def settle(self) -> None:
        """Records a failure as the cause if it only reported the loss of another pod, and no such pod was found."""
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
        """True if the job should have ended by now: a pod failed permanently more than FINAL_SECONDS ago."""
        return time.monotonic() - self._final_at > FINAL_SECONDS

    @property
    def is_explained(self) -> bool:
        """True if a pod has failed permanently."""
        return any(map(_is_final, self._all))

    def error(
        self, name: str, condition: Optional[Mapping[str, Any]] = None, runs_pipeline: bool = False
    ) -> Optional[TfxEstimatorError]:
        """Returns the error that the training failed with; None if no pod has failed.

        Args:
            condition: The operator's final condition of the job; None if the operator did not end it.
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
        """Returns why a job has ended although its pods could have been restarted."""
        if condition is None:
            return f"{name} was not started again ({self._kind.option('backoff_limit')})"
        return f"{name} failed: {text_of(condition)}{self._kind.limits}; the last pod that had failed before"

    def _restarted(self, failure: PodFailure) -> None:
        self._cause_at = time.monotonic()
        self._complete = False
        self.restarts += 1
        self._progress.restarted(f"{failure.task} {failure.cause}", _WHAT)


def text_of(condition: Mapping[str, Any]) -> str:
    """Returns the reason and message of a condition or an event."""
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"


def _is_final(failure: PodFailure) -> bool:
    return failure.code is not None and failure.code < _RETRYABLE_FROM
