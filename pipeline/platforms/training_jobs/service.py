"""Submits a compiled training job with its ConfigMap, and follows it with its chief's log."""

from __future__ import annotations

import glob
import itertools
import math
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Optional, TypeVar

import yaml

from tfx_estimator.components.trainer.protocol.task_spec import CHIEF
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms import kubernetes
from tfx_estimator.pipeline.platforms.follow import RESUMES, JobStatus, RefusedError, Started, UnavailableError
from tfx_estimator.pipeline.platforms.note import Note
from tfx_estimator.pipeline.platforms.training_jobs import following
from tfx_estimator.pipeline.platforms.training_jobs.api import NAMESPACE, Kube
from tfx_estimator.pipeline.platforms.training_jobs.following import Following, create_or_adopt
from tfx_estimator.pipeline.platforms.training_jobs.kinds import (
    BY_NAME,
    PENDING_TIMEOUT,
    SUCCEEDED,
    TF_JOB,
    Object,
    annotations_of,
    end_of,
    state_of,
)
from tfx_estimator.pipeline.platforms.training_jobs.manifest import kind_of
from tfx_estimator.pipeline.platforms.training_jobs.watching import JOB, LISTED, POD, Notice

# Annotation of a job: the digest of what was submitted.
SUBMISSION = "tfx-estimator/submission"

_Answer = TypeVar("_Answer")


def place_of(deploy: DeploySection, target: str, **_: Optional[str]) -> Note:
    """Returns a note of the submission's destination, without a job yet and without a request."""
    job = getattr(deploy, target)
    context, found = kubernetes.current_context(job.context)
    namespace = job.namespace or found or (context and NAMESPACE)
    return Note(target, "", context=context, namespace=namespace, kind=kind_of(deploy, target).name)


def where(note: Note) -> str:
    """Returns a description of the destination."""
    return f"context {note.context or '(none)'}, namespace {note.namespace or '(of the context)'}"


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> TrainingJobs:
    """Connects to a note's cluster; arguments as of `kubeflow.service.connect`."""
    # A note of an earlier release names no kind.
    kube = Kube(note.context, note.namespace, BY_NAME[note.kind or TF_JOB.name])
    try:
        kube.jobs()
    except UnavailableError as error:
        raise UnavailableError(f"{kube.host}: {error}") from error
    return TrainingJobs(kube, os.path.join(folder, "logs"), text, digest, note.uid)


class TrainingJobs:
    """See `follow.Service`.

    Args:
        folder: For the logs of the pods.
        text: The compiled documents; empty if a job is only followed.
        uid: Of the job to follow, as another one of its name may have replaced it; None is any.
    """

    def __init__(self, kube: Kube, folder: str, text: str = "", digest: str = "", uid: Optional[str] = None) -> None:
        self._kube, self._folder, self._text, self._digest, self._uid = kube, folder, text, digest, uid
        self._following: Optional[Following] = None
        self._restarts = _Restarts()
        # The names of the chief's pods by their uids, in order of appearance; the bytes shown of each log.
        self._chiefs: dict[str, str] = {}
        self._shown: dict[str, int] = {}

    def start(self, again: bool) -> Started:
        """See `follow.Service`. The job has the pipeline's name, so one exists at a time.

        Raises:
            PipelineError: The job was refused; or an earlier one is not removed in time.
        """
        *needed, job = yaml.load_all(self._text, yaml.CSafeLoader)
        name = job["metadata"]["name"]
        job["metadata"].setdefault("annotations", {})[SUBMISSION] = self._digest
        create = partial(self._kube.create, job, needed)
        found, is_new = create_or_adopt(self._kube, name, lambda found: self._is_same(found, again), create)
        self._uid = found["metadata"]["uid"]
        # The process that created an existing job may have ended before setting the owner of these.
        for each in () if is_new else needed:
            self._kube.add(each, found)
        return Started(name, is_new, "" if is_new else end_of(found)[0] or "running")

    def status(self, job: str) -> JobStatus:
        """See `follow.Service`."""
        found = self._read(lambda: self._kube.read(job))
        if found is None or self._uid not in (None, found["metadata"]["uid"]):
            return JobStatus("deleted", True, self._gone(job), is_gone=True)
        if self._following is None:
            self._uid = found["metadata"]["uid"]
            timeout = float(annotations_of(found).get(PENDING_TIMEOUT, math.inf))
            self._following = Following(self._kube, found, self._folder, self._restarts, timeout, runs_pipeline=True)
        seen = self._following
        pods = self._read(lambda: self._kube.pods(job))["items"]
        # A pod that failed, was deleted and was restarted since the last call is in no list.
        while seen.poll(0.0, with_log=False):
            pass
        seen.take(Notice(JOB, LISTED, [found]))
        seen.take(Notice(POD, LISTED, pods))
        chiefs = (each for each in pods if self._kube.kind.task(each) == f"{CHIEF}-0")
        self._chiefs.update({each["metadata"]["uid"]: each["metadata"]["name"] for each in chiefs})
        state, (ended, condition) = state_of(found), end_of(found)
        state = state or ("Running" if seen.all_run else "Pending")
        error: Optional[TfxEstimatorError] = None
        if ended == SUCCEEDED:
            seen.end(following.LAST_WORDS_SECONDS)
        elif ended:
            error = seen.error(condition)
        elif error := seen.hopeless():
            state, error = "Failed", seen.give_up(error)
        tasks = {each["metadata"]["name"]: each.get("status", {}).get("phase", "") for each in pods}
        notices = (*self._restarts.taken(), *seen.notices())
        return JobStatus(state, bool(ended or error), error, tasks=tasks, lines=self._new_lines(), notices=notices)

    def cancel(self, job: str) -> None:
        """See `follow.Service`."""
        found = self._kube.read(job)
        if found is not None and self._uid in (None, found["metadata"]["uid"]):
            self._kube.delete(job, found["metadata"]["uid"])

    def address(self, job: str) -> str:
        """See `follow.Service`."""
        kind = self._kube.kind
        return f"{self._kube.host}/apis/{kind.api_version}/namespaces/{self._kube.namespace}/{kind.plural}/{job}"

    def place(self) -> Mapping[str, Any]:
        """See `follow.Service`."""
        kube = self._kube
        return {"context": kube.context, "namespace": kube.namespace, "kind": kube.kind.name, "uid": self._uid}

    def close(self) -> None:
        """See `follow.Service`."""
        if self._following is not None:
            self._following.end(0.0)

    def _read(self, request: Callable[[], _Answer]) -> _Answer:
        try:
            return request()
        except (UnavailableError, RefusedError):
            if self._following is not None:
                self._following.wait_anew()
            raise

    def _is_same(self, found: Object, again: bool) -> bool:
        """True if the existing job is this submission, running or succeeded; `again` excludes the latter.

        Raises:
            PipelineError: It is another one, and still running.
        """
        digest, ended = annotations_of(found).get(SUBMISSION), end_of(found)[0]
        if digest != self._digest and not ended and "deletionTimestamp" not in found["metadata"]:
            what = "another submission of this pipeline is running" if digest else "it was not created by `submit`"
            name = found["metadata"]["name"]
            raise PipelineError(
                f"{self._title(name)} exists already: {what}",
                expected="no job of this name, or one that has ended",
                todo=f"wait for its end, or delete it: {self._kube.kubectl(f'delete {self._kube.kind.plural} {name}')}",
            )
        is_this = digest == self._digest and "deletionTimestamp" not in found["metadata"]
        return is_this and (ended == "" or (ended == SUCCEEDED and not again))

    def _gone(self, job: str) -> PipelineError:
        return PipelineError(
            f"{self._title(job)} is gone, and its result is unknown",
            expected="a job that exists until its end is seen: it was deleted, or its time to live is too short, or "
            "another submission replaced it",
            todo=f"see deploy.pipeline_root for its results; {RESUMES}",
        )

    def _title(self, name: str) -> str:
        return f"the {self._kube.kind.name} {self._kube.namespace}/{name}"

    def _new_lines(self) -> tuple[str, ...]:
        """Returns the complete lines that the chief has printed since the last call."""
        found: list[str] = []
        folder = glob.escape(self._folder)
        names = [os.path.join(folder, f"{name}.{uid[:8]}*.log") for uid, name in self._chiefs.items()]
        for path in itertools.chain.from_iterable(sorted(glob.glob(name)) for name in names):
            with open(path, "rb") as file:
                seen = file.seek(self._shown.get(path, 0))
                whole, mark, _ = file.read().rpartition(b"\n")
            self._shown[path] = seen + len(whole) + len(mark)
            found += whole.decode(errors="replace").splitlines()
        return tuple(found)


class _Restarts:
    """See `failures.Restarts`."""

    def __init__(self) -> None:
        self.noted_at = -math.inf
        self._new: list[str] = []

    def restarted(self, cause: str, what: str) -> None:
        """See `failures.Restarts`."""
        self.noted_at = time.monotonic()
        self._new.append(f"{cause}; {what}")

    def taken(self) -> list[str]:
        """Returns the restarts since the last call."""
        taken, self._new = self._new, []
        return taken
