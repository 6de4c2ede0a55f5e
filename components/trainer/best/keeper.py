"""Records the evaluations during training, keeps the best checkpoint, and decides on export and early stopping."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.trainer.best.decision import Evaluation, Record, judge, ranked
from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.best import METRICS
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.config.trainer import TrainerSection

_FOLDER = "best"
# Different from the checkpoints that training resumes from.
_NAME = "best.ckpt-"
_INDEX, _DRAFT = ".index", ".tmp"


@dataclass(frozen=True)
class Chosen:
    """The checkpoint to export, by its prefix."""

    checkpoint: str
    step: int
    metrics: Mapping[str, float]


class Keeper(Observer):
    """Keeps the record of evaluations, and the best checkpoint.

    An evaluation of step 0 does not count: nothing was trained.

    Args:
        section: With `keep_best`, `early_stopping` or both.
        damage: Returns why a checkpoint cannot be read; None if it can.
    """

    def __init__(
        self,
        training_dir: str,
        section: TrainerSection,
        damage: Callable[[str], Optional[str]],
        progress: ProgressWriter,
    ) -> None:
        self._training_dir = training_dir
        self._section = section
        self._damage = damage
        self._progress = progress
        self._copies = _Copies(training_dir)
        self._stops = says_stop(training_dir, section)
        self._evaluated: Optional[int] = None

    @property
    def stops(self) -> bool:
        """True if early stopping ends training."""
        return self._stops

    def knows(self, step: int) -> bool:
        """True if the checkpoint of a step was evaluated, or is of step 0, which needs no evaluation."""
        return step <= 0 or Record.load(self._training_dir).has(step)

    def check_metrics(self, reported: Callable[[], Collection[str]]) -> None:
        """Checks, before training, that the evaluations will report the declared metrics.

        Args:
            reported: Returns the names of the model's metrics; not called for a built-in network, or after an earlier
                evaluation.
        """
        if self._section.model in SHORT_NAMES["trainer.model"]:
            self._require(METRICS)
        elif not len(Record.load(self._training_dir)):
            self._require(reported())

    def _require(self, metrics: Collection[str]) -> None:
        for key in ("keep_best", "early_stopping"):
            declared = getattr(self._section, key)
            if declared is not None and declared.metric not in metrics:
                raise UserCodeError(
                    f"trainer.{key}.metric: the evaluation reports no `{declared.metric}`",
                    expected=f"one of {', '.join(sorted(metrics))}",
                    todo="name one of them, or add it to the metrics of your model",
                )

    def resume_from(self, step: int) -> None:
        """Removes the evaluations after the checkpoint that training resumes from."""
        record = Record.load(self._training_dir)
        if (until := record.until(step)) != record:
            until.save(self._training_dir)
            self._stops = says_stop(self._training_dir, self._section)

    def evaluated(self, step: int, metrics: Mapping[str, float], checkpoint: str) -> None:
        """Records the evaluation of a checkpoint; the file is written last, so that a retry after a kill repeats it."""
        self._require(metrics)
        self._evaluated = step
        if step <= 0:
            return
        record = Record.load(self._training_dir).add(step, metrics)
        best = self._keep(record, step, checkpoint) if self._section.keep_best else None
        record.save(self._training_dir)
        self._stops = says_stop(self._training_dir, self._section)
        if self._section.keep_best:
            self._copies.keep_only(best)

    def choose(self, last: str, step: int) -> Chosen:
        """Chooses and reports the checkpoint to export: with `keep_best` the best readable one, else the last."""
        record = Record.load(self._training_dir)
        self._report_early_stop(record, step)
        metrics = next((each.metrics for each in record if each.step == step), {})
        if metrics and step != self._evaluated:
            # A task evaluated it that ended before it could export.
            self._progress.write(Event.EVALUATED, step=step, metrics=dict(metrics))
        chosen = Chosen(last, step, metrics)
        if self._section.keep_best:
            found = self._best(record, last)
            chosen = found or chosen
            text = self._text(chosen, len(record), step, metrics) if found else f"step {step:,}, the last: none is best"
            _write_note(self._training_dir, "exported", text, chosen.step)
            self._progress.write(Event.CHOSEN, step=chosen.step, metrics=dict(chosen.metrics), text=text)
        return chosen

    def _keep(self, record: Record, step: int, checkpoint: str) -> Optional[int]:
        """Copies the best existing checkpoint, unless there is a copy already; returns its step."""
        assert self._section.keep_best is not None
        for each in ranked(record, self._section.keep_best):
            if each.step != step and _exists(self._copies.path(each.step)):
                return each.step
            if self._copies.keep(_with_step(checkpoint, each.step), each.step):
                return each.step
        return None

    def _best(self, record: Record, last: str) -> Optional[Chosen]:
        """Returns the best readable checkpoint; reports better ones that cannot be read."""
        assert self._section.keep_best is not None
        metric = self._section.keep_best.metric
        for each in ranked(record, self._section.keep_best):
            reason = "it is gone"
            for path in (self._copies.path(each.step), _with_step(last, each.step)):
                if _exists(path):
                    found = self._damage(path)
                    if found is None:
                        return Chosen(path, each.step, each.metrics)
                    reason = f"it is damaged: {found}"
            self._notice(
                f"the checkpoint of step {each.step:,}, {metric} {each.metrics[metric]:.4f}, cannot be exported "
                f"({reason}); the next best takes its place"
            )
        self._notice(f"no evaluated checkpoint is best by {metric}: the last one is exported")
        return None

    def _text(self, chosen: Chosen, evaluations: int, step: int, metrics: Mapping[str, float]) -> str:
        assert self._section.keep_best is not None
        metric = self._section.keep_best.metric
        text = f"step {chosen.step:,}: the best {metric}, {chosen.metrics[metric]:.4f}, of {evaluations} evaluations"
        if step != chosen.step:
            text += f"; the last, of step {step:,}: {metrics.get(metric, math.nan):.4f}"
        return text

    def _report_early_stop(self, record: Record, step: int) -> None:
        section = self._section.early_stopping
        if section is None or not (verdict := judge(record, section)).stop:
            return
        steps = self._section.train_steps
        if steps and step >= steps:
            return
        total = f" of {steps:,}" if steps else ""
        since = _since(verdict.best, section.metric)
        text = f"at step {step:,}{total}: {since} for {verdict.waited} evaluations"
        _write_note(self._training_dir, "stopped early", text, step)
        self._progress.write(Event.ENDED_EARLY, step=step, text=text)

    def _notice(self, text: str) -> None:
        self._progress.write(Event.NOTICED, text=text)


def says_stop(training_dir: str, section: Optional[TrainerSection]) -> bool:
    """Returns whether early stopping, if declared, ends the training."""
    if section is None or section.early_stopping is None:
        return False
    return judge(Record.load(training_dir), section.early_stopping).stop


def is_declared(section: Optional[TrainerSection]) -> bool:
    """Returns whether a best checkpoint or early stopping is declared."""
    return section is not None and bool(section.keep_best or section.early_stopping)


def _with_step(checkpoint: str, step: int) -> str:
    """Returns the prefix of another step's checkpoint in the same folder."""
    return f"{checkpoint.rpartition('-')[0]}-{step}"


def _since(best: Optional[Evaluation], metric: str) -> str:
    if best is None:
        return f"{metric} was no finite number"
    return f"{metric} has not improved on {best.metrics[metric]:.4f}, of step {best.step:,},"


class _Copies:
    """The copy of the best checkpoint, in its own folder: `keep_checkpoint_max` removes the original."""

    def __init__(self, training_dir: str) -> None:
        self._folder = os.path.join(training_dir, _FOLDER)

    def path(self, step: int) -> str:
        """Returns the prefix of the copy of a step's checkpoint."""
        return os.path.join(self._folder, f"{_NAME}{step}")

    def keep(self, checkpoint: str, step: int) -> bool:
        """Copies a checkpoint, its index last, as a mark that it is complete; returns whether it still existed."""
        fileio.makedirs(self._folder)
        try:
            others = [path for path in fileio.glob(f"{checkpoint}.*") if not path.endswith(_INDEX)]
            for path in (*others, f"{checkpoint}{_INDEX}"):
                target = self.path(step) + path[len(checkpoint) :]
                fileio.copy(path, f"{target}{_DRAFT}", overwrite=True)
                fileio.rename(f"{target}{_DRAFT}", target, overwrite=True)
        except fileio.NotFoundError:
            return False
        return True

    def keep_only(self, step: Optional[int]) -> None:
        """Removes the copies of other steps; all for None."""
        own = "" if step is None else f"{self.path(step)}."
        for path in fileio.glob(os.path.join(self._folder, f"{_NAME}*")):
            if not (own and path.startswith(own)) or path.endswith(_DRAFT):
                fileio.remove(path)


def _exists(checkpoint: str) -> bool:
    return fileio.exists(f"{checkpoint}{_INDEX}")


def _write_note(training_dir: str, title: str, text: str, step: int) -> None:
    """Writes a decision as a text for TensorBoard."""
    # Imported late: only the task that exports needs these.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(os.path.join(training_dir, _FOLDER))
    writer.add_event(Event(step=step, summary=text_pb(title, text)))
    writer.close()
