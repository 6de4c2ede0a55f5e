"""Trains in a TFJob: creates it, or adopts the one of the same training, follows it to its end, and cancels it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import time
import zipfile
from typing import Optional

from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, stopped
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.signals import Signals
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.components.trainer.tfjob import endings, pod, progress
from tfx_estimator.components.trainer.tfjob.api import Kube, LostError, Object, TakenError
from tfx_estimator.components.trainer.tfjob.endings import RESTARTING, end_of, notes_of, short, state_of
from tfx_estimator.components.trainer.tfjob.failures import Failures, said_of
from tfx_estimator.components.trainer.tfjob.manifest import job_name, make_manifest, restart_limit
from tfx_estimator.components.trainer.tfjob.pending import Pending
from tfx_estimator.components.trainer.tfjob.pods import Pods
from tfx_estimator.components.trainer.tfjob.watching import DELETED, FOUND, JOB, LISTED, LOST, POD, Notice, Watching
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.user_source.pack import Packed

# Annotations of our TFJobs: the training folder, the last attempt of the tasks before it, and a digest of its contents.
TRAINING, AFTER, MADE_OF = "tfx-estimator/training", "tfx-estimator/after-attempt", "tfx-estimator/made-of"
_POLL_SECONDS, _RETRY_SECONDS = 0.2, 1.0
# An API server that has just been restarted may refuse requests for a while, because it does not know its permissions
# yet.
_REFUSED_SECONDS = 30.0
# How long to wait for the pods' ends and logs after the end of the TFJob; and for the pods to end gracefully.
_LAST_WORDS_SECONDS, _GRACE_SECONDS = 5.0, 120.0
_SILENT_TIMES = 5
# How long the deletion of an earlier run's TFJob may take; it goes after its pods.
_DELETED_SECONDS = 600.0
# How long until a file that a pod has written is visible here.
_SHARED_SECONDS = 60.0

logger = get_logger("trainer")


class Launcher:
    """Trains one job in a TFJob.

    Args:
        job: What to train; its training folder is in the pods, too.
        logs: Folder of the tasks' files, in the training folder.
        modules: The user's own, where they are not in the image.
    """

    def __init__(
        self, kube: Kube, job: Job, deploy: DeploySection, name: str, logs: str, modules: Optional[Packed] = None
    ) -> None:
        self._kube, self._job, self._deploy, self._logs, self._modules = kube, job, deploy, logs, modules
        settings = job.settings
        self._distribution = settings.distribution.resolved()
        self._patience = settings.stall_timeout
        # The supervisors in the pods end a stalled task long before this.
        self._silence = _SILENT_TIMES * (settings.start_timeout + settings.stall_timeout)
        self._name = job_name(name, job.training_dir)
        self._job_path = os.path.join(logs, "tfjob.json")
        self._manifest = make_manifest(self._name, deploy, self._distribution, pod.command(self._job_path))
        self._report = Report.of(settings.built_in)
        self._pods = Pods(kube, os.path.join(logs, "pods"))
        wanted = sum(self._distribution.pods.values())
        self._pending = Pending(self._pods, wanted, deploy.tfjob.pending_timeout)
        # When the tasks in the pods last gave a sign of life.
        self._moved = time.monotonic()
        # For each watch that has lost its server: since when, and the error.
        self._lost: dict[str, tuple[float, Exception]] = {}
        self._state, self._suspended = "", False

    def run(self) -> Outcome:
        """Trains.

        Raises:
            TrainingError: A pod failed, by its own error; or the TFJob did not start, was deleted, or left no model.
            StoppedError: A signal ended it; the TFJob is deleted.
            PipelineError: There is a TFJob of this name that is not ours, or the API server refuses, or has gone.
        """
        with Signals() as signals:
            found = self._begin(signals)
            self._progress = progress.Progress(self._logs, self._report, int(notes_of(found).get(AFTER, 0)))
            self._failures = Failures(self._deploy.tfjob.restart_policy, self._progress)
            watching = Watching(self._kube, self._name, found["metadata"]["uid"])
            try:
                self._follow(found, watching, signals)
            finally:
                watching.end()
                self._pods.end(_LAST_WORDS_SECONDS)
        self._wait_for_export()
        return self._progress.outcome()

    def _begin(self, signals: Signals) -> Object:
        """Creates the TFJob, or adopts the one that trains the same."""
        lost_since: Optional[float] = None
        deleting_since: Optional[float] = None
        started = "no TFJob was started"
        while True:
            if signals.received:
                raise stopped(signals.received, started)
            try:
                if there := self._kube.read(self._name):
                    if self._adopts(there):
                        logger.info(f"the TFJob {self._title} of this training is there: going on with it", extra=STAYS)
                        return there
                    self._kube.delete(self._name, there["metadata"]["uid"])
                    if deleting_since is None:
                        deleting_since = time.monotonic()
                        logger.info(f"the TFJob {self._title} of an earlier run is deleted first, with its pods")
                    self._check_deleted(deleting_since)
                    time.sleep(_RETRY_SECONDS)
                    continue
                self._prepare()
                started = f"the TFJob {self._title} may have been started: see `{self._kube.kubectl('get tfjobs')}`"
                created = self._kube.create(self._annotated())
                logger.info(f"the TFJob {self._title} trains; logs of its pods: {self._logs}/pods", extra=STAYS)
                return created
            except TakenError:
                # It exists already: an earlier request whose answer was lost has created it, or somebody else just now.
                lost_since = None
                time.sleep(_RETRY_SECONDS)
            except LostError as error:
                if lost_since is None:
                    lost_since = time.monotonic()
                    logger.warning(f"the API server cannot be asked: {short(error)}; trying again")
                if time.monotonic() - lost_since > self._patience:
                    raise endings.unreachable(self._kube.host, error, self._patience) from error
                time.sleep(_RETRY_SECONDS)

    def _check_deleted(self, since: float) -> None:
        """Gives up on a TFJob that does not go."""
        if time.monotonic() - since > _DELETED_SECONDS:
            raise errors.PipelineError(
                f"the TFJob {self._title} of an earlier run was deleted {_DELETED_SECONDS:g} s ago, and is still there",
                expected="its end, and that of its pods",
                todo=f"see which pod, node or finalizer holds it: {self._kube.kubectl('get tfjob,pods')}",
            )

    @property
    def _title(self) -> str:
        return f"{self._kube.namespace}/{self._name}"

    def _prepare(self) -> None:
        """Leaves what the pods read, and nothing of an earlier training."""
        self._job.save(self._job_path)
        folder = os.path.join(self._job.training_dir, pod.MODULES)
        shutil.rmtree(folder, ignore_errors=True)
        if self._modules:
            with zipfile.ZipFile(io.BytesIO(self._modules.data)) as file:
                file.extractall(folder)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._logs, "stop"))

    def _annotated(self) -> Object:
        after = str(progress.last_attempt(self._logs))
        notes = {TRAINING: self._job.training_dir, AFTER: after, MADE_OF: self._digest()}
        return {**self._manifest, "metadata": {**self._manifest["metadata"], "annotations": notes}}

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self._manifest, sort_keys=True).encode()).hexdigest()

    def _adopts(self, there: Object) -> bool:
        """Is the TFJob that exists this training, finished or running; not one that failed or is being deleted.

        Nor one that another `deploy` has made, and that is not done.

        Raises:
            PipelineError: It is somebody else's.
        """
        if notes_of(there).get(TRAINING) != self._job.training_dir:
            raise errors.PipelineError(
                f"there is a TFJob {self._title} already, and it does not train in {self._job.training_dir}",
                expected="none of this name, or the one that an earlier run of this training has started",
                todo="see whose it is, and delete it, or name another deploy.tfjob.namespace: "
                f"{self._kube.kubectl(f'describe tfjob {self._name}')}",
            )
        if "deletionTimestamp" in there["metadata"]:
            return False
        state = end_of(there)[0]
        if state == "Succeeded":
            return self._has_export()
        return state == "" and notes_of(there).get(MADE_OF) == self._digest()

    def _follow(self, found: Object, watching: Watching, signals: Signals) -> None:
        """Follows the TFJob to its end.

        Raises:
            TfxEstimatorError: It did not succeed.
        """
        uid = found["metadata"]["uid"]
        # The clock starts here, because an earlier TFJob may have taken long to be deleted.
        self._pending.begin()
        self._moved = time.monotonic()
        while True:
            if signals.received:
                self._cancel(uid, watching, signals)
            notice = watching.next(_POLL_SECONDS)
            if self._progress.hear():
                self._moved = time.monotonic()
            if notice and notice.watch == JOB and notice.is_news:
                mine = [each for each in notice.objects if each["metadata"]["uid"] == uid]
                if not mine or notice.event == DELETED:
                    raise endings.deleted(self._title)
                self._tell(mine[0])
                self._suspended = endings.is_suspended(mine[0])
                state, condition = end_of(mine[0])
                if state == "Succeeded":
                    return
                if state == "Failed":
                    raise self._failed(condition, watching)
            self._hear(notice)
            self._failures.settle()
            self._check_restarts(uid)
            self._check_start(uid)

    def _hear(self, notice: Optional[Notice]) -> None:
        """Takes what a watch says of pods, and of itself."""
        self._check_lost()
        if notice is None:
            return
        kind, event, found = notice
        if event == LOST:
            if not self._lost:
                logger.warning(f"the API server cannot be asked: {short(found)}; the TFJob goes on meanwhile")
            since, _ = self._lost.get(kind, (time.monotonic(), None))
            self._lost[kind] = since, found
            return
        if self._lost.pop(kind, None) and not self._lost:
            logger.info("the API server answers again")
        if kind != POD or event == FOUND:
            return
        failures = self._pods.take_all(found) if event == LISTED else [self._pods.take(found, event == DELETED)]
        if self._pending.all_run:
            self._failures.all_run()
        for failure in filter(None, failures):
            self._failures.note(failure)

    def _check_lost(self) -> None:
        """Gives up on a server that has been gone for too long; the TFJob is left alone."""
        for since, error in self._lost.values():
            refused = isinstance(error, errors.TfxEstimatorError)
            if time.monotonic() - since > (_REFUSED_SECONDS if refused else self._patience):
                raise error if refused else endings.unreachable(self._kube.host, error, self._patience)

    def _check_start(self, uid: str) -> None:
        """Gives up on pods that do not start, or start again; one that cannot be seen may well have."""
        if self._pending.all_run or "pod" in self._lost:
            self._pending.begin()
            self._check_silence(uid)
            return
        self._moved = time.monotonic()
        if self._suspended:
            self._pending.begin()
        for text in self._pending.notices():
            logger.warning(text)
        if self._pending.is_over:
            error = self._pending.error(self._title, self._kube.kubectl("get events"))
            self._give_up(uid)
            error.todo += "; the TFJob is deleted"
            raise error

    def _check_silence(self, uid: str) -> None:
        """Gives up on pods that all run, or seem to, and of which nothing is heard: their node may have gone."""
        silent = time.monotonic() - self._moved
        if silent > self._silence:
            self._give_up(uid)
            raise errors.TaskStalledError(
                f"nothing was heard of the pods of the TFJob {self._title} for {silent:.0f} s",
                expected=f"a sign of progress within {self._silence:g} s (trainer.start_timeout and stall_timeout)",
                todo=f"see the pods' logs: {self._logs}/pods; the TFJob is deleted, and the next run goes on from the "
                "last checkpoint",
            )

    def _check_restarts(self, uid: str) -> None:
        """Ends what the operator, with the policy ExitCode, starts again without end, or leaves unended.

        Source: https://github.com/kubeflow/trainer/issues/2045.
        """
        left = self._failures.lingers and self._state == RESTARTING and not (self._lost or self._pods.chief_succeeded)
        left = left and endings.is_left_restarting(self._kube, self._name, uid)
        if left or self._failures.restarts > restart_limit(self._deploy, self._distribution):
            self._give_up(uid)
            error = self._failures.error(self._title)
            assert error is not None
            raise error

    def _give_up(self, uid: str) -> None:
        with contextlib.suppress(LostError, errors.TfxEstimatorError):
            self._kube.delete(self._name, uid)

    def _tell(self, there: Object) -> None:
        """Logs a state of the TFJob that is new."""
        if (state := state_of(there)) not in ("", self._state):
            self._state = state
            logger.info(f"TFJob {self._name}: {state}")

    def _cancel(self, uid: str, watching: Watching, signals: Signals) -> None:
        """Deletes the TFJob, and lets its pods write a checkpoint.

        Raises:
            StoppedError: Always.
        """
        number = signals.received or signal.SIGTERM
        name = signal.Signals(number).name
        logger.info(f"{name}: deleting the TFJob; its pods write a checkpoint; a second one does not wait for them")
        deadline, deleted, gone = time.monotonic() + _GRACE_SECONDS, False, False
        refused = ""
        while time.monotonic() < deadline and not (gone or signals.again):
            if not deleted:
                try:
                    self._kube.delete(self._name, uid)
                    deleted = True
                except LostError:
                    pass
                except errors.TfxEstimatorError as error:
                    refused = f": {short(error)}"
            notice = watching.next(_POLL_SECONDS)
            self._progress.hear()
            if notice and notice.watch == POD:
                for each in notice.objects:
                    self._pods.take(each, deleted=notice.event == DELETED)
                if notice.event == LISTED:
                    self._pods.take_all(notice.objects)
            if notice and notice.watch == JOB and notice.event in (LISTED, DELETED):
                # The TFJob is deleted after its pods, so this is the end of both.
                gone = notice.event == DELETED or all(each["metadata"]["uid"] != uid for each in notice.objects)
        saved = paths.checkpoints_of(self._job).drop_damaged()
        where = f"the last checkpoint is of step {saved}" if saved is not None else "no checkpoint was written yet"
        left = "is deleted" if deleted else f"could not be deleted{refused}, and may go on"
        raise stopped(number, f"the TFJob {self._title} {left}; {where}")

    def _failed(self, condition: Object, watching: Watching) -> errors.TfxEstimatorError:
        """Says why the TFJob failed: by the error of a pod."""
        said = said_of(condition)
        # Only the operator's message tells them apart, in words that no name can contain; the reason is the same for
        # all failures.
        if "specified deadline" in condition.get("message", ""):
            return errors.TaskStalledError(
                f"the TFJob {self._title} failed: {said}",
                expected=f"its end within {self._deploy.tfjob.active_deadline_seconds} s",
                todo="raise deploy.tfjob.active_deadline_seconds; the next run goes on from the last checkpoint",
            )
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not self._failures.is_explained and time.monotonic() < deadline:
            self._hear(watching.next(_POLL_SECONDS))
        self._pods.end(_LAST_WORDS_SECONDS)
        todo = self._kube.kubectl(f"describe tfjob {self._name}")
        failed = errors.TaskFailedError(f"the TFJob {self._title} failed: {said}", todo=todo)
        return self._failures.error(self._title) or failed

    def _has_export(self) -> bool:
        serving = path_utils.serving_model_dir(self._job.exports_dir)
        return fileio.exists(os.path.join(serving, "saved_model.pb"))

    def _wait_for_export(self) -> None:
        """What a pod has written may take its time to be seen here."""
        deadline = time.monotonic() + _SHARED_SECONDS
        while not self._has_export():
            if time.monotonic() > deadline:
                raise errors.ExportError(
                    f"the TFJob {self._title} succeeded, and left no model in {self._job.exports_dir}",
                    expected="a model there, in the volume that the pods and this machine share",
                    todo=f"see whether deploy.volumes is the same folder here, and the pods' logs: {self._logs}/pods",
                )
            time.sleep(_RETRY_SECONDS)
