"""Trains in a job of Kubernetes, if the declaration says so: creates it, or adopts that of the same, and follows it."""

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
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.platforms.follow import LostError, Patience, patiently, saying
from tfx_estimator.pipeline.platforms.training_jobs import following, pod, progress
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.following import Following, create_or_adopt
from tfx_estimator.pipeline.platforms.training_jobs.kinds import PIPELINE, SUCCEEDED, Object, end_of, notes_of, state_of
from tfx_estimator.pipeline.platforms.training_jobs.manifest import job_name, kind_of, make_manifests
from tfx_estimator.pipeline.user_source.pack import Packed, pack

# Annotations of our jobs: the training folder, the last attempt of the tasks before it, and a digest of its contents.
TRAINING, AFTER, MADE_OF = "tfx-estimator/training", "tfx-estimator/after-attempt", "tfx-estimator/made-of"
_POLL_SECONDS = 0.2
# How long to wait for the pods to end gracefully.
_GRACE_SECONDS = 120.0
# How long until a file that a pod has written is visible here.
_SHARED_SECONDS = 60.0

logger = get_logger("trainer")
_say = saying(logger)


def check(deploy: DeploySection, folder: str) -> Kube:
    """Finds out, before anything is done, that a training job can be started, and sees the work folder.

    Args:
        folder: The work folder, or a part of it.

    Raises:
        DeclarationError: The folder is in no volume.
        PipelineError: There is no cluster, no CRD of the kind of job, or no permission.
    """
    path = folder if is_address(folder) else os.path.abspath(folder)
    if not deploy.is_mounted(path, writable=True):
        paths = ", ".join(volume.path for volume in deploy.volumes if not volume.read_only)
        raise errors.DeclarationError(
            f"the work folder is in none of deploy.volumes: {path}",
            expected=f"a folder that the pods have at the same path, below {paths}",
            todo="name it by --workdir (in Kubeflow: deploy.training_root), or mount its volume there",
        )
    job = getattr(deploy, deploy.training_job)
    kube = Kube(job.context, job.namespace, kind_of(deploy, deploy.training_job))
    kube.check()
    return kube


def train(job: Job, settings: Settings, logs: str) -> Outcome:
    """Trains a job in pods.

    Raises:
        TfxEstimatorError: As `check` and `Launcher.run`.
    """
    deploy, section = settings.deploy, settings.trainer
    kube = check(deploy, job.training_dir)
    assert section is not None
    assert settings.declaration is not None
    modules = modules_of(section, job.exec_properties.get("run_fn") or job.exec_properties.get("trainer_fn") or "")
    return Launcher(kube, job, deploy, settings.declaration["name"], logs, modules).run()


def modules_of(section: TrainerSection, function: str = "") -> Optional[Packed]:
    """Packs what the pods import of the user's own; of a module file, too.

    TFX's wheel of that holds what lies beside it, but no folder, and nothing of the declaration's.

    Args:
        section: What to train; the declaration's folder is in `sys.path`.
        function: Dotted path of a module file's function in a step of a compiled pipeline: its modules have travelled
            there, and the file has not.

    Returns:
        The wheel; None where there is nothing of the user's own.

    Raises:
        DeclarationError: It cannot travel.
    """
    target = section.target
    if section.module_file is not None and function:
        target = ":".join(function.rsplit(".", 1))
    return pack([target])


class Launcher:
    """Trains one job in pods.

    Args:
        job: What to train; its training folder is in the pods, too.
        logs: Folder of the tasks' files, in the training folder.
        modules: The user's own, where they are not in the image.
    """

    def __init__(
        self, kube: Kube, job: Job, deploy: DeploySection, name: str, logs: str, modules: Optional[Packed] = None
    ) -> None:
        self._kube, self._job, self._logs, self._modules = kube, job, logs, modules
        self._timeout = getattr(deploy, deploy.training_job).pending_timeout
        settings = job.settings
        self._patience = settings.stall_timeout
        self._name = job_name(kube.kind, name, job.training_dir)
        self._title = f"the {kube.kind.name} {kube.namespace}/{self._name}"
        self._job_path = os.path.join(logs, "training-job.json")
        command = pod.command(self._job_path)
        made = make_manifests(self._name, deploy, deploy.training_job, settings.distribution.resolved(), command)
        *self._needed, self._manifest = made
        self._manifest["metadata"].setdefault("labels", {})[PIPELINE] = name
        self._report = Report.of(settings.built_in)
        self._started = f"no {kube.kind.name} was started"

    def run(self) -> Outcome:
        """Trains.

        Raises:
            TrainingError: A pod failed, by its own error; or the job did not start, was deleted, or left no model.
            StoppedError: A signal ended it; the job is deleted.
            PipelineError: There is a job of this name that is not ours, or the API server refuses, or has gone.
        """
        with Signals() as signals:
            found = self._begin(signals)
            told = progress.Progress(self._logs, self._report, int(notes_of(found).get(AFTER, 0)))
            job = Following(self._kube, found, os.path.join(self._logs, "pods"), told, self._timeout)
            try:
                self._follow(job, told, signals)
            finally:
                job.end(following.LAST_WORDS_SECONDS)
        self._wait_for_export()
        return told.outcome()

    def _begin(self, signals: Signals) -> Object:
        """Creates the job, or adopts the one that trains the same."""

        def rest(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while not signals.received and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            if signals.received:
                raise stopped(signals.received, self._started)

        rest(0.0)
        about = (self._kube, self._name, self._adopts, self._create, rest)
        found, is_new = patiently(lambda: create_or_adopt(*about), _say, self._patience, rest)
        how = "trains" if is_new else "of this training is there, and is gone on with"
        logger.info(f"{self._title} {how}; logs of its pods: {self._logs}/pods", extra=STAYS)
        return found

    def _create(self) -> Object:
        """Leaves what the pods read, and nothing of an earlier training; then creates the job."""
        self._job.save(self._job_path)
        folder = os.path.join(self._job.training_dir, pod.MODULES)
        shutil.rmtree(folder, ignore_errors=True)
        if self._modules:
            with zipfile.ZipFile(io.BytesIO(self._modules.data)) as file:
                file.extractall(folder)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._logs, "stop"))
        look = self._kube.kubectl(f"get {self._kube.kind.plural}")
        self._started = f"{self._title} may have been started: see `{look}`"
        return self._kube.create(self._annotated(), self._needed)

    def _annotated(self) -> Object:
        after = str(progress.last_attempt(self._logs))
        notes = {**notes_of(self._manifest), TRAINING: self._job.training_dir, AFTER: after, MADE_OF: self._digest()}
        return {**self._manifest, "metadata": {**self._manifest["metadata"], "annotations": notes}}

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([*self._needed, self._manifest], sort_keys=True).encode()).hexdigest()

    def _adopts(self, there: Object) -> bool:
        """Is the job that exists this training, finished or running; not one that failed or is being deleted.

        Nor one that another `deploy` has made, and that is not done.

        Raises:
            PipelineError: It is somebody else's.
        """
        if notes_of(there).get(TRAINING) != self._job.training_dir:
            raise errors.PipelineError(
                f"{self._title} is there already, and it does not train in {self._job.training_dir}",
                expected="none of this name, or the one that an earlier run of this training has started",
                todo=f"see whose it is, and delete it, or name another {self._kube.kind.option('namespace')}: "
                f"{self._kube.kubectl(f'describe {self._kube.kind.plural} {self._name}')}",
            )
        if "deletionTimestamp" in there["metadata"]:
            return False
        state = end_of(there)[0]
        if state == SUCCEEDED:
            return self._has_export()
        return state == "" and notes_of(there).get(MADE_OF) == self._digest()

    def _follow(self, job: Following, told: progress.Progress, signals: Signals) -> None:
        """Follows the job to its end; one whose server has gone for too long is left alone.

        Raises:
            TfxEstimatorError: It did not succeed.
        """
        patience, shown = Patience(_say, self._patience), ""
        while True:
            if signals.received:
                self._cancel(job, told, signals)
            job.hear(_POLL_SECONDS)
            told.hear()
            if error := job.lost():
                patience.lost(error)
            else:
                patience.found()
            if job.is_gone:
                raise errors.TaskFailedError(
                    f"{self._title} was deleted, and not by this run",
                    todo="run the same again: training goes on from the last checkpoint",
                )
            if (state := state_of(job.there)) not in ("", shown):
                shown = state
                logger.info(f"{self._kube.kind.name} {self._name}: {state}")
            ended, condition = end_of(job.there)
            if ended == SUCCEEDED:
                # The other watch may have told of pods that are done.
                while job.hear(0.0):
                    pass
                return
            if ended:
                raise job.error(condition)
            for text in job.notices():
                logger.warning(text)
            if failed := job.hopeless():
                raise job.give_up(failed)

    def _cancel(self, job: Following, told: progress.Progress, signals: Signals) -> None:
        """Deletes the job, and lets its pods write a checkpoint.

        Raises:
            StoppedError: Always.
        """
        number = signals.received or signal.SIGTERM
        name = signal.Signals(number).name
        logger.info(f"{name}: deleting {self._title}; its pods write a checkpoint; a second one does not wait for them")
        deadline, deleted = time.monotonic() + _GRACE_SECONDS, False
        left = "could not be deleted, and may go on"
        job.is_cancelled = True
        # The job is deleted after its pods, so its end is that of both.
        while time.monotonic() < deadline and not (job.is_gone or signals.again):
            if not deleted:
                try:
                    self._kube.delete(self._name, job.there["metadata"]["uid"])
                    deleted, left = True, "is deleted"
                except (LostError, errors.TfxEstimatorError) as error:
                    left = f"could not be deleted: {first_line(error)}, and may go on"
            job.hear(_POLL_SECONDS)
            told.hear()
        saved = paths.checkpoints_of(self._job).drop_damaged()
        where = f"the last checkpoint is of step {saved}" if saved is not None else "no checkpoint was written yet"
        raise stopped(number, f"{self._title} {left}; {where}")

    def _has_export(self) -> bool:
        serving = path_utils.serving_model_dir(self._job.exports_dir)
        return fileio.exists(os.path.join(serving, "saved_model.pb"))

    def _wait_for_export(self) -> None:
        """What a pod has written may take its time to be seen here."""
        deadline = time.monotonic() + _SHARED_SECONDS
        while not self._has_export():
            if time.monotonic() > deadline:
                raise errors.ExportError(
                    f"{self._title} succeeded, and left no model in {self._job.exports_dir}",
                    expected="a model there, in the volume that the pods and this machine share",
                    todo=f"see whether deploy.volumes is the same folder here, and the pods' logs: {self._logs}/pods",
                )
            time.sleep(1.0)
