"""What a run came to, however it ended: `summary.json`; imports no TFX."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import NotBlessedError, StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import finite, write_json
from tfx_estimator.pipeline.report.source import read_versions
from tfx_estimator.pipeline.runners.listener import NodeRun

FILE = "summary.json"
SUCCEEDED, FAILED, INTERRUPTED = "succeeded", "failed", "interrupted"
# TFMA's names.
ACCURACY, LOSS, COUNT = "sparse_categorical_accuracy", "sparse_categorical_crossentropy", "example_count"
_DIFF = "_diff"
_SIGINT = 130


@dataclass(frozen=True)
class Warned:
    """A warning that was shown.

    Args:
        component: Of which component; empty before the first.
    """

    component: str
    text: str

    def __str__(self) -> str:
        return f"{self.component}: {self.text}" if self.component else self.text


@dataclass
class Summary:
    """What a run came to.

    Args:
        source: Of the declaration: a preset's name, or a file.
        name: Of the pipeline; empty if the declaration is wrong.
        state: `succeeded`, `failed` or `interrupted`.
        error: Its `type`, and `what`, `expected` and `todo`, as they were shown; None without one.
        started: When, as of ISO 8601, with the offset from UTC.
        components: How each component went, in their order; empty if the run ended before there was a pipeline.
        notes: On the declaration, and on the batches of an input_fn of the user's.
        examples: Number of examples, by split.
        accuracy: Of the Evaluator, overall.
        evaluated: Number of examples that the Evaluator read.
        evaluated_split: Their split: `eval`, or `test` where one is declared.
        slices: Accuracy and number of examples by feature and value; crossed ones as `a x b`.
        slice_metrics: All metrics that are numbers, likewise.
        metrics: All of the Evaluator's metrics that are numbers, overall.
        label_names: The classes, in the order of their labels.
        blessed: None without an evaluation.
        reasons: Why not blessed.
        baseline_dropped: Why the latest blessed model was not compared with, where a service found one that cannot be.
        pushed: Folder of the pushed model, if one was.
        model_run: Checkpoints, TensorBoard events and logs of the training.
        training: Facts of the training: steps, seconds, rate.
        training_folder: Where one that failed or was stopped has left its checkpoints, events and logs.
        restarts: What went wrong with a task, and what it cost; a line each.
        exported: Which checkpoint is the model, and why, where one is declared to be chosen.
        stopped_early: Where training ended before its last step, and why; None if it did not.
        learning_rate: The highest, where it is scaled with the number of replicas.
        tuning: The trials, what they were judged by, and which was the best, where there is a Tuner.
        stages: How long those of a pipeline waited for each other.
        profiles: Folders of the tasks' profiles, by task.
        versions: The stack, those of Python and the packages, and the machine.
    """

    source: str
    name: str = ""
    state: str = SUCCEEDED
    exit_code: int = 0
    error: Optional[dict[str, str]] = None
    started: str = ""
    seconds: float = 0.0
    components: Sequence[NodeRun] = ()
    warnings: list[Warned] = field(default_factory=list)
    notes: Sequence[str] = ()
    examples: dict[str, int] = field(default_factory=dict)
    dataset: str = ""
    accuracy: Optional[float] = None
    loss: Optional[float] = None
    evaluated: int = 0
    evaluated_split: str = ""
    slices: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    slice_metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    blessed: Optional[bool] = None
    reasons: list[str] = field(default_factory=list)
    baseline_dropped: Optional[str] = None
    pushed: Optional[str] = None
    model_run: Optional[str] = None
    training: dict[str, float] = field(default_factory=dict)
    training_folder: Optional[str] = None
    restarts: list[str] = field(default_factory=list)
    exported: Optional[str] = None
    stopped_early: Optional[str] = None
    learning_rate: Optional[str] = None
    tuning: Optional[dict[str, Any]] = None
    stages: Optional[str] = None
    profiles: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=read_versions)

    def __post_init__(self) -> None:
        self.started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.begun = time.monotonic()

    def heard(self, components: Sequence[NodeRun], warnings: Sequence[Warned]) -> None:
        """Takes note of how the components went, and of what was shown meanwhile."""
        self.components, self.warnings = list(components), list(warnings)

    def end(self, error: Optional[BaseException] = None) -> None:
        """Takes note of the end.

        Args:
            error: What ended the run; None if it succeeded.
        """
        self.seconds = round(time.monotonic() - self.begun, 3)
        if error is None:
            return
        self.exit_code = _exit_code(error)
        stopped = isinstance(error, (KeyboardInterrupt, StoppedError)) or self.exit_code > 128
        self.state = INTERRUPTED if stopped else FAILED
        told = error if isinstance(error, TfxEstimatorError) else TfxEstimatorError(str(error) or "ended by a signal")
        self.error = {
            "type": type(error).__name__,
            "what": told.what,
            "expected": told.expected,
            "todo": told.todo,
        }

    def further_metrics(self) -> dict[str, float]:
        """Returns the metrics that no other field holds, without their differences from the baseline's."""
        shown = {ACCURACY, LOSS, COUNT, *(f"{name}{_DIFF}" for name in self.metrics)}
        return {name: value for name, value in self.metrics.items() if name not in shown}

    def gained(self) -> Optional[float]:
        """Returns by how much the accuracy is above that of the latest blessed model; None where there was none."""
        return self.metrics.get(f"{ACCURACY}{_DIFF}")

    def why_not_blessed(self) -> str:
        """Returns the reasons in one line."""
        return "; ".join(self.reasons) or "no threshold was met"

    def check_blessed(self) -> None:
        """Refuses a model that is not blessed, where it has to be.

        Raises:
            NotBlessedError: It is not.
        """
        if not self.blessed:
            raise NotBlessedError(
                f"the model is not blessed: {self.why_not_blessed()}",
                expected="a blessed model, as of --require-blessing",
                todo="train a better one; or see evaluator.min_accuracy and evaluator.max_accuracy_drop",
            )

    def warnings_beside_restarts(self) -> list[Warned]:
        """Returns the warnings that the field `restarts` does not tell."""
        return [each for each in self.warnings if not any(line.startswith(each.text) for line in self.restarts)]

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: what is not a number is null."""
        return finite(asdict(self))

    def write(self, path: str) -> None:
        """Writes it as JSON, whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        write_json(path, self.to_dict(), indent=2, allow_nan=False)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, (TfxEstimatorError, SignalledError)):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return _SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, (int, type(None))):
        return error.code or 0
    return 1
