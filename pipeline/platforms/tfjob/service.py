"""A compiled TFJob: it is created in the cluster, with its ConfigMap, and its chief's log is shown."""

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

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms import kubernetes
from tfx_estimator.pipeline.platforms.follow import GOES_ON, Look, LostError, Started
from tfx_estimator.pipeline.platforms.note import Note
from tfx_estimator.pipeline.platforms.tfjob import following
from tfx_estimator.pipeline.platforms.tfjob.api import NAMESPACE, Kube, Object, end_of, notes_of, state_of
from tfx_estimator.pipeline.platforms.tfjob.compile import PENDING_TIMEOUT
from tfx_estimator.pipeline.platforms.tfjob.following import Following, create_or_adopt
from tfx_estimator.pipeline.platforms.tfjob.watching import JOB, LISTED, POD, Notice

# Annotation of a TFJob: the digest of what was submitted.
SUBMISSION = "tfx-estimator/submission"
_SUCCEEDED = "Succeeded"

_Told = TypeVar("_Told")


def place_of(deploy: DeploySection, target: str, **_: Optional[str]) -> Note:
    """Returns a note of where a declaration is submitted to, without a job yet; nobody is asked."""
    context, found = kubernetes.current_context(deploy.tfjob.context)
    return Note(target, "", context=context, namespace=deploy.tfjob.namespace or found or (context and NAMESPACE))


def where(note: Note) -> str:
    """Returns the place in words."""
    return f"context {note.context or '(none)'}, namespace {note.namespace or '(of the context)'}"


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> TfJobs:
    """Connects to the cluster of a note; as `kubeflow.service.connect`."""
    kube = Kube(note.context, note.namespace)
    try:
        kube.jobs()
    except LostError as error:
        raise LostError(f"{kube.host}: {error}") from error
    return TfJobs(kube, os.path.join(folder, "logs"), text, digest, note.uid)


class TfJobs:
    """See `follow.Service`.

    Args:
        folder: For the logs of the pods.
        text: What was compiled; empty where a TFJob is only followed.
        uid: Of the TFJob that is followed, which another one may have replaced; None is whichever is there.
    """

    def __init__(self, kube: Kube, folder: str, text: str = "", digest: str = "", uid: Optional[str] = None) -> None:
        self._kube, self._folder, self._text, self._digest, self._uid = kube, folder, text, digest, uid
        self._following: Optional[Following] = None
        self._restarts = _Restarts()
        # The chief's pods, in order of appearance; and the number of bytes shown of each one's log.
        self._chiefs: dict[str, None] = {}
        self._shown: dict[str, int] = {}

    def start(self, again: bool) -> Started:
        """See `follow.Service`. A TFJob has the pipeline's name, and there is one of it at a time.

        Raises:
            PipelineError: The TFJob was refused; or an earlier one was deleted, and does not go.
        """
        config_map, job = yaml.safe_load_all(self._text)
        name = job["metadata"]["name"]
        job["metadata"].setdefault("annotations", {})[SUBMISSION] = self._digest
        create = partial(self._kube.create, job)
        there, is_new = create_or_adopt(self._kube, name, lambda there: self._goes_on(there, again), create)
        self._uid = there["metadata"]["uid"]
        # Its pods wait for the ConfigMap, which goes with it. Also of one that is there: whoever created it may have
        # been ended before he did this.
        try:
            self._kube.own_config_map(config_map, there)
        except PipelineError:
            if is_new:
                self._kube.delete(name, self._uid)
            raise
        return Started(name, is_new, "" if is_new else end_of(there)[0] or "goes on")

    def look(self, job: str) -> Look:
        """See `follow.Service`."""
        there = self._read(lambda: self._kube.read(job))
        if there is None or self._uid not in (None, there["metadata"]["uid"]):
            return Look("deleted", True, self._gone(job), is_gone=True)
        if self._following is None:
            self._uid = there["metadata"]["uid"]
            timeout = float(notes_of(there).get(PENDING_TIMEOUT, math.inf))
            self._following = Following(self._kube, there, self._folder, self._restarts, timeout, runs_pipeline=True)
        seen = self._following
        pods = self._read(lambda: self._kube.pods(job))["items"]
        # A pod that failed, and was deleted and started again since the last look, is in no list.
        while seen.hear(0.0, with_log=False):
            pass
        seen.take(Notice(JOB, LISTED, [there]))
        seen.take(Notice(POD, LISTED, pods))
        chief = f"{job}-chief-0"
        self._chiefs.update({each["metadata"]["uid"]: None for each in pods if each["metadata"]["name"] == chief})
        state, (ended, condition) = state_of(there) or "Pending", end_of(there)
        error: Optional[TfxEstimatorError] = None
        if ended == _SUCCEEDED:
            seen.end(following.LAST_WORDS_SECONDS)
        elif ended:
            error = seen.error(condition)
        elif error := seen.hopeless():
            state, error = "Failed", seen.give_up(error)
        tasks = {each["metadata"]["name"]: each.get("status", {}).get("phase", "") for each in pods}
        notices = (*self._restarts.taken(), *seen.notices())
        return Look(state, bool(ended or error), error, tasks=tasks, lines=self._new_lines(chief), notices=notices)

    def cancel(self, job: str) -> None:
        """See `follow.Service`."""
        there = self._kube.read(job)
        if there is not None and self._uid in (None, there["metadata"]["uid"]):
            self._kube.delete(job, there["metadata"]["uid"])

    def address(self, job: str) -> str:
        """See `follow.Service`."""
        return f"{self._kube.host}/apis/kubeflow.org/v1/namespaces/{self._kube.namespace}/tfjobs/{job}"

    def place(self) -> Mapping[str, Any]:
        """See `follow.Service`."""
        kube = self._kube
        return {"context": kube.context, "namespace": kube.namespace, "uid": self._uid}

    def close(self) -> None:
        """See `follow.Service`."""
        if self._following is not None:
            self._following.end(0.0)

    def _read(self, ask: Callable[[], _Told]) -> _Told:
        try:
            return ask()
        except LostError:
            if self._following is not None:
                self._following.wait_anew()
            raise

    def _goes_on(self, there: Object, again: bool) -> bool:
        """Is a TFJob that is there this submission, done or under way; not one that failed, or is being deleted.

        Raises:
            PipelineError: It is another one, and goes on.
        """
        digest, ended = notes_of(there).get(SUBMISSION), end_of(there)[0]
        if digest != self._digest and not ended and "deletionTimestamp" not in there["metadata"]:
            what = "another submission of this pipeline goes on" if digest else "it was not made by `submit`"
            name = there["metadata"]["name"]
            raise PipelineError(
                f"there is a TFJob {self._full_name(name)} already: {what}",
                expected="none of this name, or one that has ended",
                todo=f"wait for its end, or delete it: {self._kube.kubectl(f'delete tfjob {name}')}",
            )
        is_this = digest == self._digest and "deletionTimestamp" not in there["metadata"]
        return is_this and (ended == "" or (ended == _SUCCEEDED and not again))

    def _gone(self, job: str) -> PipelineError:
        return PipelineError(
            f"the TFJob {self._full_name(job)} is not there any more, and its end is not known",
            expected="one that stays until its end is seen: somebody deleted it, another submission took its name, "
            "or deploy.tfjob.ttl_seconds_after_finished is too short",
            todo=f"see deploy.pipeline_root for what it came to; {GOES_ON}",
        )

    def _full_name(self, name: str) -> str:
        return f"{self._kube.namespace}/{name}"

    def _new_lines(self, chief: str) -> tuple[str, ...]:
        """Returns the whole lines that the chief has printed since."""
        found: list[str] = []
        names = [os.path.join(glob.escape(self._folder), f"{chief}.{uid[:8]}*.log") for uid in self._chiefs]
        for path in itertools.chain.from_iterable(sorted(glob.glob(name)) for name in names):
            with open(path, "rb") as file:
                seen = self._shown.get(path, 0)
                # What another process had kept was shown, and set aside since.
                seen = seen if os.path.getsize(path) >= seen else 0
                file.seek(seen)
                whole, mark, _ = file.read().rpartition(b"\n")
            self._shown[path] = seen + len(whole) + len(mark)
            found += whole.decode(errors="replace").splitlines()
        return tuple(found)


class _Restarts:
    """See `failures.Restarts`."""

    def __init__(self) -> None:
        self.noted_at = -math.inf
        self._told: list[str] = []

    def restarted(self, cause: str, what: str) -> None:
        """See `failures.Restarts`."""
        self.noted_at = time.monotonic()
        self._told.append(f"{cause}; {what}")

    def taken(self) -> list[str]:
        """Returns those that were not taken yet."""
        taken, self._told = self._told, []
        return taken
