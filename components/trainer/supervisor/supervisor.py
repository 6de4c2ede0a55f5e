"""Supervises training tasks: fresh processes, progress, deadlines, restarts, and the first cause of a failure.

The contract is torchrun's: if a task of a synchronous cluster dies, stalls or never starts, all of its tasks are killed
and restarted from the last checkpoint, at most `max_restarts` times. Every wait has a deadline, no child outlives its
parent, and an error names the task, its message and its log.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable
from typing import Optional

from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.files import poll_seconds
from tfx_estimator.components.trainer.best.keeper import says_stop
from tfx_estimator.components.trainer.cluster import plan
from tfx_estimator.components.trainer.cluster.tf_config import TfConfig, resolve
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, REPLICA_CHECK, TaskSpec
from tfx_estimator.components.trainer.replica_check import verdict as replica_check
from tfx_estimator.components.trainer.supervisor import stored
from tfx_estimator.components.trainer.supervisor.failure import Failure
from tfx_estimator.components.trainer.supervisor.group import Group
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart, stopped
from tfx_estimator.components.trainer.supervisor.process import TaskProcess
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.stopping import Signals, Stopping
from tfx_estimator.components.trainer.supervisor.stored import EvaluatorBeat
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.pipeline.base.errors import ExportError
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.config.paths import is_address

_POLL_SECONDS = 0.1
_CONSEQUENCE_SECONDS = 60.0

logger = get_logger("trainer")


class Supervisor:
    """Runs the tasks of one training to their end.

    Args:
        logs: Local folder for the tasks' files.
        temporary: Folder for the tasks' temporary files.
        enough: Returns True to end the tasks without evaluation and export.
    """

    def __init__(
        self,
        job: Job,
        logs: str,
        temporary: str,
        enough: Optional[Callable[[], bool]] = None,
    ) -> None:
        self._job = job
        self._settings = job.settings
        self._distribution = job.settings.distribution
        self._traits = paths.traits_of(job, self._distribution)
        self._checkpoints = paths.checkpoints_of(job)
        self._logs = logs
        self._temporary = temporary
        self._enough = enough or (lambda: False)
        built_in = job.settings.built_in
        self._steps = built_in.train_steps if built_in else None
        self._report = Report.of(built_in)
        self._attempt = _last_attempt(logs)
        self._job_path = os.path.join(logs, "job.json")
        self._stop_file = os.path.join(logs, "stop")
        self._stopping = Stopping(self._stop_file, self._traits.synchronous, self._report, self._checkpoints)
        self._beat: Optional[EvaluatorBeat] = None
        self._restarts = 0
        self._cause_at = -math.inf
        self._network: tuple[int, ...] = ()
        self._trained = False

    def run(self) -> Outcome:
        """Trains."""
        place = resolve(os.environ)
        if place is not None:
            self._job_path = os.path.join(self._logs, f"job-{place.task.name}.json")
        self._job.save(self._job_path)
        leads, is_stored = place is None or place.task.type == CHIEF, is_address(self._job.training_dir)
        if place is not None and leads and is_stored:
            stored.offer(self._job)
        if leads or is_stored:
            # In an external cluster only the chief removes the stop file: the other tasks share it, and may be running
            # already. If the training folder is in a store, each task has its own local folder and stop file.
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._stop_file)
        if leads:
            saved = self._checkpoints.drop_damaged()
            self._trained = bool(self._steps and saved and saved >= self._steps) and self._traits.exporter != CHIEF
        with Signals() as signals:
            if leads:
                self._check_replicas(signals)
            if place is not None:
                self._run_external_cluster(place, signals)
            elif not self._distribution.train.is_cluster:
                self._attempts(plan.alone(CHIEF), signals)
            else:
                self._run_local_cluster(signals)
            if signals.received:
                raise stopped(signals.received, "training is done, and the model is published by the next run")
        if self._report.publishes:
            self._checkpoints.tidy()
            stored.remove(self._job.training_dir)
            self._stopping.remove()
        return self._report.outcome()

    def _check_replicas(self, signals: Signals) -> None:
        """Checks the user's loss under several replicas, once per training folder, and refuses a wrong one."""
        if self._traits.needs_check and replica_check.is_needed(self._job):
            self._attempts(plan.alone(REPLICA_CHECK), signals)
            found = replica_check.read(self._job.training_dir)
            if batch := found.get("batch"):
                logger.info(batch, extra=STAYS)
            for note, level in replica_check.notes(found, self._distribution.acknowledge):
                logger.log(level, note)

    def _run_local_cluster(self, signals: Signals) -> None:
        with plan.cluster_network(self._job, self._distribution) as network:
            self._network = network
            self._attempts(
                lambda attempt: plan.local_cluster(self._distribution, attempt), signals, over=self._is_over_early
            )
            self._network = ()
        # Needed even with an evaluator: it exports nothing if training ends before the step that it waits for.
        if not (self._traits.exporter == CHIEF or self._enough() or self._has_export()):
            self._attempts(plan.alone(EXPORTER), signals)

    def _run_external_cluster(self, place: TfConfig, signals: Signals) -> None:
        """Runs this machine's task of the cluster in TF_CONFIG, without restarts: those are the cluster manager's.

        A chief that is restarted when all steps are done does not train: the other tasks may have ended.
        """
        self._report.publishes = place.task.type == CHIEF
        if is_address(self._job.training_dir) and self._traits.synchronous:
            self._stopping.use_store(self._job.training_dir)
        if place.task.type == EVALUATOR:
            self._beat = EvaluatorBeat(self._job.training_dir, self._settings.stall_timeout, self._has_export)
        logger.info(f"TF_CONFIG is set: this is {place.task.name} of a cluster of {len(place.cluster.tasks)} tasks")
        self._attempts(
            lambda attempt: plan.own_place(place, self._distribution, attempt),
            signals,
            restarts=0,
            over=lambda: self._trained or self._is_over_early(),
        )
        if place.task.type != CHIEF or self._traits.exporter == CHIEF or self._has_export():
            return
        if self._traits.exporter == EXPORTER or not self._evaluator_exports(signals):
            self._attempts(plan.alone(EXPORTER), signals)

    def _attempts(
        self,
        make_specs: Callable[[int], list[TaskSpec]],
        signals: Signals,
        restarts: Optional[int] = None,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Starts and restarts tasks until they are done or `over`."""
        allowed = self._distribution.max_restarts if restarts is None else restarts
        while not over():
            group = Group(
                self._start,
                self._settings.start_timeout,
                self._settings.stall_timeout,
                self._report.record,
                self._traits.serving,
            )
            try:
                group.start(make_specs(self._next_attempt()))
                failure = self._watch(group, signals, allowed)
            finally:
                group.kill()
            if failure is None:
                return
            self._note_restart(failure, group, allowed, "all tasks were started again")
            self._checkpoints.drop_damaged()

    def _watch(self, group: Group, signals: Signals, allowed: int) -> Optional[Failure]:
        """Watches tasks, and restarts a single one where that is enough.

        Returns:
            The failure after which all tasks must be restarted; None when all is done.
        """
        alone: set[str] = set()
        while not group.done() and not self._enough():
            if signals.received:
                self._stopping.end(group, signals)
            if self._distribution.evaluator:
                self._stopping.end_early(group, signals, self._is_over_early)
            failure = group.poll()
            if failure is None:
                if self._beat:
                    self._beat.write(group.last_progress)
                time.sleep(_POLL_SECONDS)
                continue
            # If the task fails again before it begins its work, the others must be restarted as well.
            again = failure.task in alone and not group.has_started(failure.task)
            if not self._restarts_alone(failure.task) or again or not failure.retryable:
                return failure
            alone.add(failure.task)
            self._note_restart(failure, group, allowed, f"{failure.task} was started again")
            group.restart(failure.task, self._next_attempt())
        group.poll()
        return None

    def _restarts_alone(self, name: str) -> bool:
        return name.rpartition("-")[0] in self._traits.alone

    def _note_restart(self, failure: Failure, group: Group, allowed: int, what: str) -> None:
        """Records a restart, or raises the failure if no restart is left."""
        recent = time.monotonic() - self._cause_at <= _CONSEQUENCE_SECONDS
        follows = failure.from_peer and recent and self._restarts_alone(failure.task)
        if not failure.retryable or (self._restarts >= allowed and not follows):
            error = failure.error
            # In an external cluster the cluster manager may restart this task.
            error.retryable = failure.retryable and not allowed
            if failure.retryable and allowed:
                error.what = f"after {self._restarts} restarts (trainer.distribution.max_restarts): {error.what}"
            raise error
        # Where single tasks are restarted, one failure may cause others. They count as one restart.
        if not follows:
            self._restarts += 1
            self._cause_at = time.monotonic()
        self._report.restarted(Restart(f"{failure.task} {failure.cause}", what, group.step, follows))

    def _is_over_early(self) -> bool:
        return says_stop(self._job.training_dir, self._settings.trainer)

    def _has_export(self) -> bool:
        """True if a task has already exported, for example the chief of a run_fn, or an exporter that died later."""
        serving = path_utils.serving_model_dir(self._job.exports_dir)
        model = os.path.join(serving, "saved_model.pb")
        return fileio.exists(model if self._job.exports else self._job.evaluated_file)

    def _evaluator_exports(self, signals: Signals) -> bool:
        """Waits for the export by the evaluator of an external cluster.

        Returns:
            False if training has ended early, which the evaluator may find only when all steps are done: it then
            leaves the export to an exporter.
        """
        timeout, beat = self._settings.stall_timeout, stored.read(self._job.training_dir)
        deadline = time.monotonic() + timeout
        while not self._has_export():
            if self._is_over_early():
                return False
            if signals.received:
                raise stopped(signals.received, "training is done, and the evaluator had not exported yet")
            if time.monotonic() > deadline:
                # The last evaluation may take longer, as long as the evaluator's progress mark changes.
                before, beat = beat, stored.read(self._job.training_dir)
                if beat == before:
                    raise ExportError(
                        f"the evaluator of this cluster left no model in {self._job.exports_dir}",
                        expected="one after training, and until then a sign of progress within "
                        f"{timeout:g} s (trainer.stall_timeout)",
                        todo="see the evaluator's log, or set trainer.distribution.evaluator to false",
                    )
                deadline = time.monotonic() + timeout
            time.sleep(poll_seconds(self._job.training_dir, _POLL_SECONDS))
        return True

    def _start(self, task_spec: TaskSpec) -> TaskProcess:
        task_spec = dataclasses.replace(task_spec, supervisor_pid=os.getpid(), stop_file=self._stop_file)
        network = () if task_spec.type == EXPORTER else self._network
        return TaskProcess(self._job_path, task_spec, self._temporary, self._settings.section.environment, network)

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt


def _last_attempt(logs: str) -> int:
    """Returns the last attempt of all runs that share the training folder, so that no log is overwritten."""
    numbers = [name.split(".attempt-")[1].split(".")[0] for name in os.listdir(logs) if ".attempt-" in name]
    return max((int(number) for number in numbers), default=0)
