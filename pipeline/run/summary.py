"""A run's `summary.json`, written to its log folder however the run ends; imports no TFX.

The summary so far is among the run's temporary files: if the run cannot write it at its end, the watcher does.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import NotBlessedError, StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import finite, read_json, write_json
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.metrics import ACCURACY, DIFF, SKILL
from tfx_estimator.pipeline.report.source import SUMMARY, read_versions
from tfx_estimator.pipeline.runners.listener import NOT_REACHED, NodeRun

if TYPE_CHECKING:  # the watcher does not import the view
    from tfx_estimator.pipeline.run.view import View

_SO_FAR = "so_far.json"
SUCCEEDED, FAILED, INTERRUPTED = "succeeded", "failed", "interrupted"
_SIGINT = 130


@dataclass(frozen=True)
class Warned:
    """A warning that was shown."""

    component: str  # empty before the first component
    text: str

    def __str__(self) -> str:
        return f"{self.component}: {self.text}" if self.component else self.text


@dataclass
class Summary:
    """Results of a run."""

    source: str  # a preset's name, or the declaration's file
    name: str = ""  # the pipeline's; empty if the declaration is invalid
    state: str = SUCCEEDED
    exit_code: int = 0
    error: Optional[dict[str, str]] = None  # `type`, `what`, `expected` and `todo`
    started: str = ""  # ISO 8601, with the offset from UTC
    seconds: float = 0.0
    components: Sequence[NodeRun] = ()  # in order; empty if the run ended before there was a pipeline
    warnings: list[Warned] = field(default_factory=list)
    notes: Sequence[str] = ()  # on the declaration, and on the batches of the user's input_fn
    examples: dict[str, int] = field(default_factory=dict)  # number by split
    dataset: str = ""
    days: int = 0  # trained on, of a table of days
    accuracy: Optional[float] = None  # the Evaluator's, overall; likewise the loss
    loss: Optional[float] = None
    evaluated: int = 0  # number of examples that the Evaluator read
    evaluated_split: str = ""  # their split: `test` if declared, else `eval`
    # Accuracy and number of examples by feature and value; crossed features as `a x b`.
    slices: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    # All metrics that are numbers: by slice, and overall.
    slice_metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()  # the classes, in the order of their labels
    blessed: Optional[bool] = None  # None without an evaluation
    reasons: list[str] = field(default_factory=list)  # why not blessed
    # Why a service did not compare the model with the latest blessed one.
    baseline_dropped: Optional[str] = None
    model: Optional[str] = None  # folder of the trained SavedModel
    pushed: Optional[str] = None  # folder of the pushed model
    model_run: Optional[str] = None  # folder of checkpoints, TensorBoard events and logs of the training
    training: dict[str, float] = field(default_factory=dict)  # its steps, seconds and rate
    training_folder: Optional[str] = None  # left by a training that failed or was stopped
    restarts: list[str] = field(default_factory=list)  # cause and cost, a line each
    exported: Optional[str] = None  # which checkpoint is the model, and why, if the declaration selects the best
    stopped_early: Optional[str] = None  # at which step, and why
    learning_rate: Optional[str] = None  # the maximum, if it is scaled with the number of replicas
    # The Tuner's trials, their metric and the best one.
    tuning: Optional[dict[str, Any]] = None
    stages: Optional[str] = None  # wait times of the stages of pipeline parallelism
    profiles: dict[str, str] = field(default_factory=dict)  # folders of profiles, by task
    versions: dict[str, str] = field(default_factory=read_versions)

    def __post_init__(self) -> None:
        self.started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.begun = time.monotonic()

    def update(self, components: Sequence[NodeRun], warnings: Sequence[Warned]) -> None:
        """Sets the components' states and the warnings."""
        self.components, self.warnings = list(components), list(warnings)

    def end(self, error: Optional[BaseException] = None) -> None:
        """Sets duration, state and exit code.

        Args:
            error: What ended the run; None if it succeeded.
        """
        self.seconds = round(time.monotonic() - self.begun, 3)
        if error is None:
            return
        self.exit_code = _exit_code(error)
        stopped = isinstance(error, (KeyboardInterrupt, StoppedError)) or self.exit_code > 128
        self.state = INTERRUPTED if stopped else FAILED
        ours = error if isinstance(error, TfxEstimatorError) else TfxEstimatorError(str(error) or "ended by a signal")
        self.error = {
            "type": type(error).__name__,
            "what": ours.what,
            "expected": ours.expected,
            "todo": ours.todo,
        }

    def accuracy_change(self) -> Optional[float]:
        """Returns the accuracy's change against the latest blessed model; None without such a model."""
        return self.metrics.get(f"{ACCURACY}{DIFF}")

    def why_not_blessed(self) -> str:
        """Returns the reasons, in one line."""
        return "; ".join(self.reasons) or "no threshold was met"

    def check_blessed(self) -> None:
        """Raises NotBlessedError unless the model is blessed."""
        if not self.blessed:
            raise NotBlessedError(
                f"the model is not blessed: {self.why_not_blessed()}",
                expected="a blessed model, for --require-blessing",
                todo="train a better one; or see evaluator.metrics"
                if SKILL in self.metrics
                else "train a better one; or see evaluator.min_accuracy and evaluator.max_accuracy_drop",
            )

    def warnings_without_restarts(self) -> list[Warned]:
        """Returns the warnings that are not in `restarts`."""
        return [each for each in self.warnings if not any(line.startswith(each.text) for line in self.restarts)]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON, with null for NaN and infinity."""
        return finite(asdict(self))

    def write(self, path: str) -> None:
        """Writes the summary as JSON, atomically."""
        write_json(path, self.to_dict(), indent=2, allow_nan=False)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, (TfxEstimatorError, SignalledError)):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return _SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, (int, type(None))):
        return error.code or 0
    return 1


@contextlib.contextmanager
def recorded(
    results: Summary, view: View, logs: str, prints: bool, collect: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Writes the summary when the context exits; a run that succeeds calls `results.end` itself.

    Args:
        results: The run's summary with its name; components, warnings and error are added.
        prints: Whether the summary is printed as well.
        collect: Reads the components' results if the run fails.
    """
    path = os.path.join(logs, SUMMARY)

    def keep() -> None:
        results.update(view.runs, view.warnings)
        _keep(results, path, view.current, prints)

    view.changed = keep
    # Clears the note of an earlier run in this process.
    scratch.note(scratch.TRAINING_FOLDER, "")
    keep()
    try:
        yield
    except BaseException as error:
        # A second Ctrl-C here would lose the summary.
        with signals.ignored():
            results.update(view.runs, view.warnings)
            results.end(error)
            results.training_folder = _training_folder(scratch.of_this_run())
            if any(run.execution_id for run in results.components):
                _try(collect)
            # A failed write must not hide the run's error.
            with contextlib.suppress(OSError):
                results.write(path)
        raise
    results.write(path)


def _try(collect: Callable[[], None]) -> None:
    try:
        collect()
    except Exception:
        logging.getLogger(__name__).exception("the components' results cannot be read")


def _keep(summary: Summary, path: str, component: str, prints: bool) -> None:
    """Saves the summary among the run's temporary files, if a watcher watches the run.

    Args:
        path: Path of the final summary.
        component: The running component; empty if none runs.
        prints: Whether the summary is printed as well.
    """
    if folder := scratch.of_this_run():
        known = {"path": path, "component": component, "prints": prints, "begun": summary.begun}
        # A failed write must not hide the run's error.
        with contextlib.suppress(OSError):
            write_json(os.path.join(folder, _SO_FAR), {**known, "summary": summary.to_dict()})


def _training_folder(folder: str) -> Optional[str]:
    """Returns the folder of a training that failed or was stopped; None without one."""
    noted = scratch.noted(folder, scratch.TRAINING_FOLDER)
    # A run that was killed while publishing may have moved it already.
    return noted if noted and (is_address(noted) or os.path.isdir(noted)) else None


def complete(folder: str, error: BaseException) -> Optional[dict[str, Any]]:
    """Writes the summary of a run that ended before it could; returns the summary if it is to be printed."""
    if (known := read_json(os.path.join(folder, _SO_FAR))) is None:  # the run had not begun
        return None
    summary = known["summary"]
    ended = Summary(summary["source"])
    ended.end(error)
    summary.update(state=ended.state, exit_code=ended.exit_code, error=ended.error)
    summary["training_folder"] = _training_folder(folder)
    summary["seconds"] = round(time.monotonic() - known["begun"], 3)
    for each in summary["components"]:
        if each["node"] == known["component"] and each["state"] == NOT_REACHED:
            each["state"] = INTERRUPTED if ended.state == INTERRUPTED else FAILED
    with contextlib.suppress(OSError):
        write_json(known["path"], summary, indent=2)
    return summary if known["prints"] else None
