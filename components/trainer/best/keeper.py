"""Takes each evaluation while training, and says which checkpoint is exported, and when training is over."""

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
# Not the name of a checkpoint that training goes on from.
_NAME = "best.ckpt-"
_INDEX, _DRAFT = ".index", ".tmp"


@dataclass(frozen=True)
class Chosen:
    """The checkpoint to export, by its path without an ending."""

    checkpoint: str
    step: int
    metrics: Mapping[str, float]


class Keeper(Observer):
    """Keeps the record of evaluations, and the best checkpoint.

    An evaluation of step 0 does not count: nothing was trained.

    Args:
        section: With `keep_best`, `early_stopping` or both.
        damage: Says why a checkpoint cannot be read; None if it can.
        progress: Where to report.
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
        self._told: Optional[int] = None

    @property
    def stops(self) -> bool:
        """Is training over before its last step."""
        return self._stops

    def knows(self, step: int) -> bool:
        """Was the checkpoint of a step evaluated; one of step 0 need not be."""
        return step <= 0 or Record.load(self._training_dir).has(step)

    def check_metrics(self, reported: Callable[[], Collection[str]]) -> None:
        """Checks, before anything is trained, that the evaluations will report what is declared.

        Args:
            reported: Asks the model for the names of its metrics; not called where they are known: of a built-in
                network, or by an earlier evaluation.
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

    def go_on_from(self, step: int) -> None:
        """Forgets what was evaluated after the checkpoint that training goes on from."""
        record = Record.load(self._training_dir)
        if (until := record.until(step)) != record:
            until.save(self._training_dir)
            self._stops = says_stop(self._training_dir, self._section)

    def evaluated(self, step: int, metrics: Mapping[str, float], checkpoint: str) -> None:
        """Takes the evaluation of a checkpoint; the record is written last, so that one cut short is made again."""
        self._require(metrics)
        self._told = step
        if step <= 0:
            return
        record = Record.load(self._training_dir).add(step, metrics)
        best = self._keep(record, step, checkpoint) if self._section.keep_best else None
        record.save(self._training_dir)
        self._stops = says_stop(self._training_dir, self._section)
        if self._section.keep_best:
            self._copies.keep_only(best)

    def choose(self, last: str, step: int) -> Chosen:
        """Chooses what is exported, and reports it: the best checkpoint that can be read, if declared; or the last."""
        record = Record.load(self._training_dir)
        self._tell_early(record, step)
        metrics = next((each.metrics for each in record if each.step == step), {})
        if metrics and step != self._told:
            # It was evaluated by a task that ended before it could export.
            self._progress.write(Event.EVALUATED, step=step, metrics=dict(metrics))
        chosen = Chosen(last, step, metrics)
        if self._section.keep_best:
            found = self._best(record, last)
            chosen = found or chosen
            text = self._word(chosen, len(record), step, metrics) if found else f"step {step:,}, the last: none is best"
            _write_note(self._training_dir, "exported", text, chosen.step)
            self._progress.write(Event.CHOSEN, step=chosen.step, metrics=dict(chosen.metrics), text=text)
        return chosen

    def _keep(self, record: Record, step: int, checkpoint: str) -> Optional[int]:
        """Copies the best of the checkpoints that are there, unless that was done before; returns its step."""
        assert self._section.keep_best is not None
        for each in ranked(record, self._section.keep_best):
            if each.step != step and _is_there(self._copies.path(each.step)):
                return each.step
            if self._copies.keep(_beside(checkpoint, each.step), each.step):
                return each.step
        return None

    def _best(self, record: Record, last: str) -> Optional[Chosen]:
        """The best checkpoint that can be read; says what was better and cannot."""
        assert self._section.keep_best is not None
        metric = self._section.keep_best.metric
        for each in ranked(record, self._section.keep_best):
            reason = "it is gone"
            for path in (self._copies.path(each.step), _beside(last, each.step)):
                if _is_there(path):
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

    def _word(self, chosen: Chosen, evaluations: int, step: int, metrics: Mapping[str, float]) -> str:
        assert self._section.keep_best is not None
        metric = self._section.keep_best.metric
        text = f"step {chosen.step:,}: the best {metric}, {chosen.metrics[metric]:.4f}, of {evaluations} evaluations"
        if step != chosen.step:
            text += f"; the last, of step {step:,}: {metrics.get(metric, math.nan):.4f}"
        return text

    def _tell_early(self, record: Record, step: int) -> None:
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
    """Tells whether early stopping says that a training is over; not so where it is not declared."""
    if section is None or section.early_stopping is None:
        return False
    return judge(Record.load(training_dir), section.early_stopping).stop


def is_declared(section: Optional[TrainerSection]) -> bool:
    """Tells whether evaluations while training decide anything."""
    return section is not None and bool(section.keep_best or section.early_stopping)


def _beside(checkpoint: str, step: int) -> str:
    """Path of another step's checkpoint of the same folder."""
    return f"{checkpoint.rpartition('-')[0]}-{step}"


def _since(best: Optional[Evaluation], metric: str) -> str:
    if best is None:
        return f"{metric} was no finite number"
    return f"{metric} has not improved on {best.metrics[metric]:.4f}, of step {best.step:,},"


class _Copies:
    """The copy of the best checkpoint, in a folder of its own: `keep_checkpoint_max` removes the original."""

    def __init__(self, training_dir: str) -> None:
        self._folder = os.path.join(training_dir, _FOLDER)

    def path(self, step: int) -> str:
        """Returns where the copy of a step's checkpoint is, or would be."""
        return os.path.join(self._folder, f"{_NAME}{step}")

    def keep(self, checkpoint: str, step: int) -> bool:
        """Copies a checkpoint, its index last, which says that it is whole; tells whether it was still there."""
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
        """Removes the copies of other steps; all if there is none to keep."""
        own = "" if step is None else f"{self.path(step)}."
        for path in fileio.glob(os.path.join(self._folder, f"{_NAME}*")):
            if not (own and path.startswith(own)) or path.endswith(_DRAFT):
                fileio.remove(path)


def _is_there(checkpoint: str) -> bool:
    """Tells whether there is a checkpoint."""
    return fileio.exists(f"{checkpoint}{_INDEX}")


def _write_note(training_dir: str, title: str, text: str, step: int) -> None:
    """Writes what was decided as a text in TensorBoard, beside the curves."""
    # In the task that exports alone, which has long since imported what these do.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(os.path.join(training_dir, _FOLDER))
    writer.add_event(Event(step=step, summary=text_pb(title, text)))
    writer.close()
