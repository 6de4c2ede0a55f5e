"""What a run came to, however it ended: `summary.json` in its folder of logs; imports no TFX.

What is known so far is among the temporary files of the run: where it ends without a word, its watcher completes it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import NotBlessedError, StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import finite, write_json
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.metrics import ACCURACY, DIFF
from tfx_estimator.pipeline.report.source import read_versions
from tfx_estimator.pipeline.runners.listener import NOT_REACHED, NodeRun

if TYPE_CHECKING:  # the watcher needs none of what shows a run
    from tfx_estimator.pipeline.run.view import View

FILE, _SO_FAR = "summary.json", "so_far.json"
SUCCEEDED, FAILED, INTERRUPTED = "succeeded", "failed", "interrupted"
_SIGINT = 130


@dataclass(frozen=True)
class Warned:
    """A warning that was shown."""

    component: str  # empty before the first
    text: str

    def __str__(self) -> str:
        return f"{self.component}: {self.text}" if self.component else self.text


@dataclass
class Summary:
    """What a run came to."""

    source: str  # of the declaration: a preset's name, or a file
    name: str = ""  # of the pipeline; empty if the declaration is wrong
    state: str = SUCCEEDED
    exit_code: int = 0
    error: Optional[dict[str, str]] = None  # its `type`, and `what`, `expected` and `todo`, as they were shown
    started: str = ""  # as of ISO 8601, with the offset from UTC
    seconds: float = 0.0
    components: Sequence[NodeRun] = ()  # in their order; empty if the run ended before there was a pipeline
    warnings: list[Warned] = field(default_factory=list)
    notes: Sequence[str] = ()  # on the declaration, and on the batches of an input_fn of the user's
    examples: dict[str, int] = field(default_factory=dict)  # how many, by split
    dataset: str = ""
    accuracy: Optional[float] = None  # of the Evaluator, overall; likewise the loss
    loss: Optional[float] = None
    evaluated: int = 0  # how many examples the Evaluator read
    evaluated_split: str = ""  # theirs: `eval`, or `test` where one is declared
    # Accuracy and number of examples by feature and value; crossed ones as `a x b`.
    slices: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    # All metrics that are numbers: of each slice, and overall.
    slice_metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()  # the classes, in the order of their labels
    blessed: Optional[bool] = None  # None without an evaluation
    reasons: list[str] = field(default_factory=list)  # why not blessed
    # Why the latest blessed model was not compared with, where a service found one that cannot be.
    baseline_dropped: Optional[str] = None
    model: Optional[str] = None  # folder of the trained SavedModel
    pushed: Optional[str] = None  # folder of the pushed model
    model_run: Optional[str] = None  # folder of checkpoints, TensorBoard events and logs of the training
    training: dict[str, float] = field(default_factory=dict)  # facts of it: steps, seconds, rate
    training_folder: Optional[str] = None  # where one that failed or was stopped has left its things
    restarts: list[str] = field(default_factory=list)  # what went wrong with a task, and what it cost; a line each
    exported: Optional[str] = None  # which checkpoint is the model, and why, where one is declared to be chosen
    stopped_early: Optional[str] = None  # where training ended before its last step, and why
    learning_rate: Optional[str] = None  # the highest, where it is scaled with the number of replicas
    # The trials, what they were judged by, and which was the best, where there is a Tuner.
    tuning: Optional[dict[str, Any]] = None
    stages: Optional[str] = None  # how long those of a pipeline waited for each other
    profiles: dict[str, str] = field(default_factory=dict)  # folders of the tasks' profiles, by task
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

    def gained(self) -> Optional[float]:
        """Returns by how much the accuracy is above that of the latest blessed model; None where there was none."""
        return self.metrics.get(f"{ACCURACY}{DIFF}")

    def why_not_blessed(self) -> str:
        """Returns the reasons in one line."""
        return "; ".join(self.reasons) or "no threshold was met"

    def check_blessed(self) -> None:
        """Refuses a model that is not blessed, where it has to be."""
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
        """Writes it as JSON, whole or not at all."""
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
    """Leaves the summary when the context ends, which says itself when the run has ended well.

    Args:
        results: Of the run, with its name; what was shown and what failed is put into it.
        prints: Whether the summary is printed as well.
        collect: Reads what the components came to before the run failed.
    """
    path = os.path.join(logs, FILE)

    def keep() -> None:
        results.heard(view.runs, view.warnings)
        _keep(results, path, view.current, prints)

    view.changed = keep
    # What a run before this one, of the same process, has noted.
    scratch.note(scratch.TRAINING_FOLDER, "")
    keep()
    try:
        yield
    except BaseException as error:
        # A second Ctrl-C here would leave no summary.
        with signals.ignored():
            results.heard(view.runs, view.warnings)
            results.end(error)
            results.training_folder = _training_folder(scratch.of_this_run())
            if any(run.execution_id for run in results.components):
                _try(collect)
            # A summary that cannot be written must not hide what went wrong.
            with contextlib.suppress(OSError):
                results.write(path)
        raise
    results.write(path)


def _try(collect: Callable[[], None]) -> None:
    try:
        collect()
    except Exception:
        logging.getLogger(__name__).exception("what the components came to cannot be read")


def _keep(summary: Summary, path: str, component: str, prints: bool) -> None:
    """Keeps it among the temporary files of the run; does nothing where nobody watches.

    Args:
        path: Where it is to be written at the end.
        component: Which runs; empty if none does.
        prints: Whether it is to be printed as well.
    """
    if folder := scratch.of_this_run():
        known = {"path": path, "component": component, "prints": prints, "begun": summary.begun}
        # An error here must not hide how the run ended.
        with contextlib.suppress(OSError):
            write_json(os.path.join(folder, _SO_FAR), {**known, "summary": summary.to_dict()})


def _training_folder(folder: str) -> Optional[str]:
    """Returns where a training that did not end well has left its things; None if none has."""
    noted = scratch.noted(folder, scratch.TRAINING_FOLDER)
    # A run that was killed while it published may have moved it already.
    return noted if noted and (is_address(noted) or os.path.isdir(noted)) else None


def complete(folder: str, error: BaseException) -> Optional[dict[str, Any]]:
    """Writes the summary of a run that could not.

    Returns:
        The summary, if it is to be printed.
    """
    try:
        with open(os.path.join(folder, _SO_FAR), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):  # it ended before it began
        return None
    told = known["summary"]
    ended = Summary(told["source"])
    ended.end(error)
    told.update(state=ended.state, exit_code=ended.exit_code, error=ended.error)
    told["training_folder"] = _training_folder(folder)
    told["seconds"] = round(time.monotonic() - known["begun"], 3)
    for each in told["components"]:
        if each["node"] == known["component"] and each["state"] == NOT_REACHED:
            each["state"] = INTERRUPTED if ended.state == INTERRUPTED else FAILED
    with contextlib.suppress(OSError):
        write_json(known["path"], told, indent=2)
    return told if known["prints"] else None
