"""Every error that this project raises on purpose.

    TfxEstimatorError                 exit code 1
    ├── DeclarationError              exit code 2   the YAML declaration, or an override, is wrong
    ├── DataError                     exit code 3   the data set cannot be had, or is not what it should be
    │   ├── DataNotFoundError                       no such data set, folder, split or version; no network
    │   ├── DamagedDataError                        truncated, corrupt or contradictory files
    │   └── DataValidationError                     ExampleValidator found anomalies
    ├── UserCodeError                 exit code 4   a model_fn or a module file does not keep its contract
    ├── TrainingError                 exit code 5   a training task failed
    │   ├── TaskFailedError                         a task ended with an error of its own
    │   ├── TaskStalledError                        a task did not start, or made no progress, before its deadline
    │   ├── ExportError                             training ended without a whole SavedModel
    │   └── StoppedError              exit code 129, 130, 143   SIGHUP, SIGINT or SIGTERM ended it at a checkpoint
    ├── PipelineError                 exit code 6   a pipeline component failed for another reason
    ├── NotBlessedError               exit code 7   the model was not blessed, and `--require-blessing` was said
    └── NotEqualError                 exit code 8   accuracies differ by more than `compare --require-equal` allows, or
                                                what `convert` made is not what it was

Each message says what was wrong, where, what was expected, and what to do next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.text import one_line, printable

# Set where whoever starts the tasks of a cluster starts one again that ends with this code.
RETRYABLE = "TFX_ESTIMATOR_RETRYABLE_EXIT_CODE"
# Shells and schedulers add the number of the signal that ended a process to it.
SIGNALLED = 128
# Of an error, to another process.
_TOLD = ("what", "expected", "todo", "retryable", "exit_code")


class TfxEstimatorError(Exception):
    """Root of the project's errors.

    `retryable` says that a task failed for no reason of its own, and may succeed when it is started again. `folder` is
    where a verb that Python called has left what it came to all the same; empty if there is none.

    Args:
        what: What was wrong, and where.
        expected: What was expected instead.
        todo: What to do next.
    """

    exit_code = 1
    retryable = False
    folder = ""
    # TensorFlow's AutoGraph makes a StagingError of any other, wherever it converts what raises it.
    ag_pass_through = True
    _indent = " " * 4

    def __init__(self, what: str, *, expected: str = "", todo: str = "") -> None:
        super().__init__(what, expected, todo)
        self.what = what
        self.expected = expected
        self.todo = todo

    def __str__(self) -> str:
        # Further lines are code, or the end of a log: they stand apart from those below.
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
    """Returns what a process ends with: the error's code, or the one that asks to be started again."""
    again = os.environ.get(RETRYABLE, "")
    return int(again) if error.retryable and again.isdecimal() else error.exit_code


def to_json(error: TfxEstimatorError) -> dict[str, Any]:
    """Returns what another process makes the same error of; of a kind of another module, its nearest one here."""
    kind = next(each for each in type(error).__mro__ if globals().get(each.__name__) is each)
    return {"type": kind.__name__, **{name: getattr(error, name) for name in _TOLD}}


def from_json(said: Mapping[str, Any]) -> Optional[TfxEstimatorError]:
    """Makes the error that another process has told; None where it is none of this project's.

    What decides what follows from it may be missing, where another release has told it.
    """
    kind = globals().get(said["type"])
    if not (isinstance(kind, type) and issubclass(kind, TfxEstimatorError)):
        return None
    error = kind(said["what"], expected=said["expected"], todo=said["todo"])
    error.retryable = said.get("retryable", error.retryable)
    error.exit_code = said.get("exit_code", error.exit_code)
    return error


def _rebuild(cls: type[TfxEstimatorError], what: str, expected: str, todo: str) -> TfxEstimatorError:
    return cls(what, expected=expected, todo=todo)


class DeclarationError(TfxEstimatorError):
    """The declaration, or an override of it, is wrong."""

    exit_code = 2
    # Its problems are laid out already.
    _indent = ""


class DataError(TfxEstimatorError):
    """The data set cannot be had, or is not what it should be."""

    exit_code = 3


class DataNotFoundError(DataError):
    """No such data set, folder, split or version; or no network to fetch it."""


class DamagedDataError(DataError):
    """Files are truncated, corrupt, or contradict each other."""


class DataValidationError(DataError):
    """ExampleValidator found anomalies in the examples."""


class UserCodeError(TfxEstimatorError):
    """A model_fn, a module file or a preprocessing_fn does not keep its contract."""

    exit_code = 4


class TrainingError(TfxEstimatorError):
    """Training did not end with a model."""

    exit_code = 5


class TaskFailedError(TrainingError):
    """A training task ended with an error of its own."""


class TaskStalledError(TrainingError):
    """A training task did not start, or made no progress, before its deadline."""


class ExportError(TrainingError):
    """Training ended without a whole SavedModel."""


class StoppedError(TrainingError):
    """A signal ended training, after a checkpoint if there was time for one.

    Args:
        what: Where training stands.
        expected: What was expected instead.
        todo: What to do next.
        exit_code: 128 and the signal's number.
    """

    def __init__(self, what: str, *, expected: str = "", todo: str = "", exit_code: int = 143) -> None:
        super().__init__(what, expected=expected, todo=todo)
        self.exit_code = exit_code


class PipelineError(TfxEstimatorError):
    """A pipeline component failed for a reason of its own."""

    exit_code = 6


class NotBlessedError(TfxEstimatorError):
    """The model did not reach what the declaration asks for, and had to: the run is done for all that."""

    exit_code = 7


class NotEqualError(TfxEstimatorError):
    """Candidates that were compared differ by more than was allowed, or a converted model from what it was."""

    exit_code = 8
