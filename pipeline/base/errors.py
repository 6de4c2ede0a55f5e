"""Every error that this project raises on purpose.

    TfxEstimatorError                 exit code 1
    ├── DeclarationError              exit code 2   the YAML declaration, or an override, is wrong
    ├── DataError                     exit code 3   the data set is unavailable or invalid
    │   ├── DataNotFoundError                       no such data set, folder, split or version; no network
    │   ├── DamagedDataError                        truncated, corrupt or contradictory files
    │   └── DataValidationError                     ExampleValidator found anomalies
    ├── UserCodeError                 exit code 4   a model_fn or a module file violates its contract
    ├── TrainingError                 exit code 5   a training task failed
    │   ├── TaskFailedError                         a task ended with its own error
    │   ├── TaskStalledError                        a task did not start, or made no progress, before its deadline
    │   │   └── NotStartedError       exit code 10  no machine or pod for it started: no image, quota or node
    │   ├── ExportError                             training ended without a complete SavedModel
    │   └── StoppedError              exit code 129, 130, 143   SIGHUP, SIGINT or SIGTERM ended it at a checkpoint
    ├── PipelineError                 exit code 6   a pipeline component failed for another reason
    ├── NotBlessedError               exit code 7   the model was not blessed, and `--require-blessing` was given
    ├── NotEqualError                 exit code 8   accuracies differ by more than `compare --require-equal` allows, or
    │                                           a converted model is not equal to the original
    └── UnfollowedError               exit code 9   a job on a service is no longer followed, and may still run

Each message states what was wrong, where, what was expected, and what to do next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.text import one_line, printable

# The variable with the exit code after which the launcher of a cluster's tasks restarts one.
RETRYABLE = "TFX_ESTIMATOR_RETRYABLE_EXIT_CODE"
# Shells and schedulers add a signal's number to it for the exit code of a killed process.
SIGNALLED = 128
# The fields of an error that another process gets.
_FIELDS = ("what", "expected", "todo", "retryable", "exit_code")


class TfxEstimatorError(Exception):
    """Root of the project's errors.

    `retryable` marks a task that failed because of another one, and may succeed after a restart. `folder` has the
    results of a failed verb that Python called; empty if there are none.

    Args:
        what: What was wrong, and where.
        expected: What was expected instead.
        todo: What to do next.
    """

    exit_code = 1
    retryable = False
    folder = ""
    # Without it, TensorFlow's AutoGraph converts the error of converted code to a StagingError.
    ag_pass_through = True
    _indent = " " * 4

    def __init__(self, what: str, *, expected: str = "", todo: str = "") -> None:
        super().__init__(what, expected, todo)
        self.what = what
        self.expected = expected
        self.todo = todo

    def __str__(self) -> str:
        # Further lines are code or the end of a log: the indent separates them from the lines below.
        lines = [printable(self.what).replace("\n", f"\n{self._indent}")]
        if self.expected:
            lines.append(f"  expected: {one_line(self.expected)}")
        if self.todo:
            lines.append(f"  to do:    {one_line(self.todo)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple:
        # Beam and subprocesses pickle errors; keyword-only arguments need help.
        state = {"exit_code": self.exit_code, "retryable": self.retryable}
        return (_rebuild, (type(self), self.what, self.expected, self.todo), state)


def exit_code_of(error: TfxEstimatorError) -> int:
    """Returns a process's exit code: the error's, or the one that requests a restart."""
    code = os.environ.get(RETRYABLE, "")
    return int(code) if error.retryable and code.isdecimal() else error.exit_code


def to_json(error: TfxEstimatorError) -> dict[str, Any]:
    """Returns the fields of `from_json`; a class of another module becomes its nearest base class here."""
    kind = next(each for each in type(error).__mro__ if globals().get(each.__name__) is each)
    return {"type": kind.__name__, **{name: getattr(error, name) for name in _FIELDS}}


def from_json(fields: Mapping[str, Any]) -> Optional[TfxEstimatorError]:
    """Returns the error of another process; None if its type is not one of this project.

    `retryable` and `exit_code` may be missing if another release wrote the fields.
    """
    kind = globals().get(fields["type"])
    if not (isinstance(kind, type) and issubclass(kind, TfxEstimatorError)):
        return None
    error = kind(fields["what"], expected=fields["expected"], todo=fields["todo"])
    error.retryable = fields.get("retryable", error.retryable)
    error.exit_code = fields.get("exit_code", error.exit_code)
    return error


def _rebuild(cls: type[TfxEstimatorError], what: str, expected: str, todo: str) -> TfxEstimatorError:
    return cls(what, expected=expected, todo=todo)


class DeclarationError(TfxEstimatorError):
    """The declaration, or an override of it, is wrong."""

    exit_code = 2
    # Its message is already formatted.
    _indent = ""


class DataError(TfxEstimatorError):
    """The data set is unavailable or invalid."""

    exit_code = 3


class DataNotFoundError(DataError):
    """No such data set, folder, split or version; or no network to fetch it."""


class DamagedDataError(DataError):
    """Files are truncated, corrupt, or contradict each other."""


class DataValidationError(DataError):
    """ExampleValidator found anomalies in the examples."""


class UserCodeError(TfxEstimatorError):
    """A model_fn, a module file or a preprocessing_fn violates its contract."""

    exit_code = 4


class TrainingError(TfxEstimatorError):
    """Training did not end with a model."""

    exit_code = 5


class TaskFailedError(TrainingError):
    """A training task ended with its own error."""


class TaskStalledError(TrainingError):
    """A training task did not start, or made no progress, before its deadline."""


class NotStartedError(TaskStalledError):
    """A training's pods or machines did not start: for want of an image, a quota or a node, not by the training."""

    exit_code = 10


class ExportError(TrainingError):
    """Training ended without a complete SavedModel."""


class StoppedError(TrainingError):
    """A signal ended training, after a checkpoint if there was time for one.

    Args:
        what: Where training stands.
        expected: What was expected instead.
        todo: What to do next.
        exit_code: 128 plus the signal's number.
    """

    def __init__(self, what: str, *, expected: str = "", todo: str = "", exit_code: int = 143) -> None:
        super().__init__(what, expected=expected, todo=todo)
        self.exit_code = exit_code


class PipelineError(TfxEstimatorError):
    """A pipeline component failed for another reason."""

    exit_code = 6


class NotBlessedError(TfxEstimatorError):
    """The run finished, but the model was not blessed, and `--require-blessing` was given."""

    exit_code = 7


class NotEqualError(TfxEstimatorError):
    """Compared candidates, or a converted model and its original, differ by more than is allowed."""

    exit_code = 8


class UnfollowedError(TfxEstimatorError):
    """A job on a service is no longer followed, and may still run: the service stays unavailable, or refuses."""

    exit_code = 9
