"""Trains in a TrainJob: creates it, or adopts the existing one of the same training, and follows it."""

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
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, stopped
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.stopping import Signals
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.platforms.follow import (
    AGAIN,
    FOLLOW_SECONDS,
    Retries,
    UnavailableError,
    log_to,
    with_retries,
)
from tfx_estimator.pipeline.platforms.training_jobs import following, pod, progress
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.following import Following, create_or_adopt
from tfx_estimator.pipeline.platforms.training_jobs.kinds import (
    PIPELINE,
    SUCCEEDED,
    TRAIN_JOB,
    Object,
    annotations_of,
    end_of,
    state_of,
)
from tfx_estimator.pipeline.platforms.training_jobs.manifest import job_name, make_manifests
from tfx_estimator.pipeline.user_source.pack import Packed, pack

# Annotations of our jobs: the training folder, the last attempt number before the job, and a digest of its manifest.
TRAINING, AFTER, MADE_OF = "tfx-estimator/training", "tfx-estimator/after-attempt", "tfx-estimator/made-of"
_POLL_SECONDS = 0.2
# How long to wait for the pods to end gracefully.
_GRACE_SECONDS = 120.0
# How long a file written by a pod may take to appear here.
_SHARED_SECONDS = 60.0

logger = get_logger("trainer")
_notify = log_to(logger)


def train(job: Job, settings: Settings, logs: str) -> Outcome:
    """Trains a job in the pods of a TrainJob.

    Raises:
        TfxEstimatorError: As of `Launcher.run`.
    """
    section, declared = settings.trainer, settings.declaration
    assert section is not None
    assert declared is not None
    deploy = DeploySection.parse_obj(declared["deploy"])
    kube = Kube(None, deploy.trainjob.namespace, TRAIN_JOB)
    with_retries(kube.ask, _notify, FOLLOW_SECONDS)
    modules = modules_of(section, job.exec_properties.get("run_fn") or job.exec_properties.get("trainer_fn") or "")
    return Launcher(kube, job, deploy, declared["name"], logs, modules).run()


def modules_of(section: TrainerSection, function: str = "") -> Optional[Packed]:
    """Packs the user's own modules that the pods import, including those that a module file imports.

    TFX's wheel of a module file holds the modules next to it, but no packages and nothing of the declaration's folder.

    Args:
        section: Of the training; the declaration's folder is in `sys.path`.
        function: Dotted path of a module file's function in a step of a compiled pipeline, which has the modules but
            not the file.

    Returns:
        The wheel; None if there are no such modules.

    Raises:
        DeclarationError: A module cannot be packed.
    """
    target = section.target
    if section.module_file is not None and function:
        target = ":".join(function.rsplit(".", 1))
    return pack([target])


class Launcher:
    """Trains one job in pods.

    Args:
        job: What to train; the pods see its training folder.
        logs: Folder of the tasks' files, inside the training folder.
        modules: The user's own, unless they are in the image.
    """

    def __init__(
        self, kube: Kube, job: Job, deploy: DeploySection, name: str, logs: str, modules: Optional[Packed] = None
    ) -> None:
        self._kube, self._job, self._logs, self._modules = kube, job, logs, modules
        self._timeout = getattr(deploy, kube.kind.section).pending_timeout
        settings = job.settings
        self._name = job_name(kube.kind, name, job.training_dir)
        self._title = f"the {kube.kind.name} {kube.namespace}/{self._name}"
        self._job_path = os.path.join(logs, "training-job.json")
        command = pod.command(self._job_path)
        manifests = make_manifests(self._name, deploy, kube.kind.section, settings.distribution.resolved(), command)
        *self._needed, self._manifest = manifests
        self._manifest["metadata"].setdefault("labels", {})[PIPELINE] = name
        self._report = Report.of(settings.built_in)
        self._started = f"no {kube.kind.name} was started"

    def run(self) -> Outcome:
        """Trains.

        Raises:
            TrainingError: A pod failed, with its own error; or the job did not start, was deleted, or left no model.
            StoppedError: A signal ended it; the job is deleted.
            PipelineError: Another job has this name, or the API server refuses or is unavailable.
            UnfollowedError: The same, while the job runs.
        """
        with Signals() as signals:
            found = self._begin(signals)
            tasks = progress.Progress(self._logs, self._report, int(annotations_of(found).get(AFTER, 0)))
            job = Following(self._kube, found, os.path.join(self._logs, "pods"), tasks, self._timeout)
            try:
                self._follow(job, tasks, signals)
            finally:
                job.end(following.LAST_WORDS_SECONDS)
        self._wait_for_export()
        return tasks.outcome()

    def _begin(self, signals: Signals) -> Object:
        """Creates the job, or adopts the one of the same training."""

        def sleep(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while not signals.received and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            if signals.received:
                raise stopped(signals.received, self._started)

        sleep(0.0)
        args = (self._kube, self._name, self._adopts, self._create, sleep)
        found, is_new = with_retries(lambda: create_or_adopt(*args), _notify, FOLLOW_SECONDS, sleep)
        how = "was created" if is_new else "of this training exists already and is continued"
        logger.info(f"{self._title} {how}; logs of its pods: {self._logs}/pods", extra=STAYS)
        return found

    def _create(self) -> Object:
        """Writes the pods' files, removes those of an earlier training, and creates the job."""
        self._job.save(self._job_path)
        folder = os.path.join(self._job.training_dir, pod.MODULES)
        shutil.rmtree(folder, ignore_errors=True)
        if self._modules:
            with zipfile.ZipFile(io.BytesIO(self._modules.data)) as file:
                file.extractall(folder)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._logs, "stop"))
        get = self._kube.kubectl(f"get {self._kube.kind.plural}")
        self._started = f"{self._title} may have been started: see `{get}`"
        return self._kube.create(self._annotated(), self._needed)

    def _annotated(self) -> Object:
        after = str(progress.last_attempt(self._logs))
        ours = {TRAINING: self._job.training_dir, AFTER: after, MADE_OF: self._digest()}
        annotations = {**annotations_of(self._manifest), **ours}
        return {**self._manifest, "metadata": {**self._manifest["metadata"], "annotations": annotations}}

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([*self._needed, self._manifest], sort_keys=True).encode()).hexdigest()

    def _adopts(self, found: Object) -> bool:
        """True if the existing job is this training, has not failed and is not being deleted.

        A running job of another `deploy` section is not adopted.

        Raises:
            PipelineError: It belongs to another training.
        """
        if annotations_of(found).get(TRAINING) != self._job.training_dir:
            raise errors.PipelineError(
                f"{self._title} exists already, and it does not train in {self._job.training_dir}",
                expected="no job of this name, or the one that an earlier run of this training has started",
                todo=f"see whose it is, and delete it, or name another {self._kube.kind.option('namespace')}: "
                f"{self._kube.kubectl(f'describe {self._kube.kind.plural} {self._name}')}",
            )
        if "deletionTimestamp" in found["metadata"]:
            return False
        state = end_of(found)[0]
        if state == SUCCEEDED:
            return self._has_export()
        return state == "" and annotations_of(found).get(MADE_OF) == self._digest()

    def _follow(self, job: Following, tasks: progress.Progress, signals: Signals) -> None:
        """Follows the job to its end; leaves it alone if the API server stays unavailable.

        Raises:
            UnfollowedError: The server stays unavailable, or refuses.
            TfxEstimatorError: It failed.
        """
        retries, shown = Retries(_notify, FOLLOW_SECONDS, AGAIN), ""
        while True:
            if signals.received:
                self._cancel(job, tasks, signals)
            job.poll(_POLL_SECONDS)
            tasks.read()
            if error := job.outage():
                retries.failed(error)
            else:
                retries.succeeded()
            if job.is_gone:
                raise errors.TaskFailedError(
                    f"{self._title} was deleted, and not by this run",
                    todo="run the same again: training resumes from the last checkpoint",
                )
            if (state := state_of(job.object)) not in ("", shown):
                shown = state
                logger.info(f"{self._kube.kind.name} {self._name}: {state}")
            ended, condition = end_of(job.object)
            if ended == SUCCEEDED:
                # Events of pods that have ended may still be queued.
                while job.poll(0.0):
                    pass
                return
            if ended:
                raise job.error(condition)
            for text in job.notices():
                logger.warning(text)
            if failed := job.hopeless():
                raise job.give_up(failed)

    def _cancel(self, job: Following, tasks: progress.Progress, signals: Signals) -> None:
        """Deletes the job, and waits for its pods to write a checkpoint.

        Raises:
            StoppedError: Always.
        """
        number = signals.received or signal.SIGTERM
        name = signal.Signals(number).name
        logger.info(f"{name}: deleting {self._title}; waiting for its pods' checkpoint; a second signal stops waiting")
        deadline, deleted = time.monotonic() + _GRACE_SECONDS, False
        left = "could not be deleted, and may still run"
        job.is_cancelled = True
        # Foreground deletion: the job goes after its pods.
        while time.monotonic() < deadline and not (job.is_gone or signals.again):
            if not deleted:
                try:
                    self._kube.delete(self._name, job.object["metadata"]["uid"])
                    deleted, left = True, "is deleted"
                except (UnavailableError, errors.TfxEstimatorError) as error:
                    left = f"could not be deleted: {first_line(error)}, and may still run"
            job.poll(_POLL_SECONDS)
            tasks.read()
        saved = paths.checkpoints_of(self._job).drop_damaged()
        where = f"the last checkpoint is of step {saved}" if saved is not None else "no checkpoint was written yet"
        raise stopped(number, f"{self._title} {left}; {where}")

    def _has_export(self) -> bool:
        serving = path_utils.serving_model_dir(self._job.exports_dir)
        return fileio.exists(os.path.join(serving, "saved_model.pb"))

    def _wait_for_export(self) -> None:
        """Waits until the exported model is visible here: a shared volume may show it late."""
        deadline = time.monotonic() + _SHARED_SECONDS
        while not self._has_export():
            if time.monotonic() > deadline:
                raise errors.ExportError(
                    f"{self._title} succeeded, and left no model in {self._job.exports_dir}",
                    expected="a model there, in the volume that the pods and this machine share",
                    todo=f"see whether deploy.volumes is the same folder here, and the pods' logs: {self._logs}/pods",
                )
            time.sleep(1.0)
