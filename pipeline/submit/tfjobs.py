"""A compiled TFJob: it is created in the cluster, with its ConfigMap, and its chief's log is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Optional, TypeVar

import yaml

from tfx_estimator.components.trainer.tfjob import api
from tfx_estimator.components.trainer.tfjob.api import Kube, MissingError, Object, TakenError
from tfx_estimator.components.trainer.tfjob.endings import end_of, notes_of, short, state_of
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.submit.job import GOES_ON, Look, LostError, Started, failed
from tfx_estimator.pipeline.submit.tfjob_view import LAST_WORDS_SECONDS, TfJobView

logger = get_logger("submit")

# Annotation of a TFJob: the digest of what was submitted.
SUBMISSION = "tfx-estimator/submission"
# Time for an earlier TFJob of this name to be deleted, after its pods.
_DELETED_SECONDS = 600.0
_SUCCEEDED = "Succeeded"

_Told = TypeVar("_Told")


class TfJobs:
    """See `job.Service`.

    Args:
        folder: For the logs of the pods.
        text: What was compiled; empty where a TFJob is only followed.
        uid: Of the TFJob that is followed, which another one may have replaced; None is whichever is there.
    """

    def __init__(self, kube: Kube, folder: str, text: str = "", digest: str = "", uid: Optional[str] = None) -> None:
        self._kube, self._folder, self._text, self._digest, self._uid = kube, folder, text, digest, uid
        # The ConfigMap, where it was created by this submission.
        self._made: Optional[Object] = None
        self._seen: Optional[Object] = None
        self._view: Optional[TfJobView] = None

    def start(self, again: bool) -> Started:
        """See `job.Service`. A TFJob has the pipeline's name, and there is one of it at a time.

        Raises:
            PipelineError: The TFJob was refused; or an earlier one was deleted, and does not go.
        """
        try:
            started = self._start(again)
        except LostError:
            raise  # it is asked again
        except BaseException:  # a signal is no Exception
            self._withdraw()
            raise
        self._made = None
        return started

    def look(self, job: str) -> Look:
        """See `job.Service`."""
        there = self._request(lambda: self._kube.read(job))
        if there is None or not self._is_mine(there):
            return Look("deleted", True, self._gone(job, there), is_gone=True)
        self._seen, self._uid = there, there["metadata"]["uid"]
        if self._view is None:
            self._view = TfJobView(self._kube, job, there, self._folder)
        view, place = self._view, self._full_name(job)
        tasks = view.hear(self._request(lambda: self._kube.pods(job))["items"])
        state = state_of(there) or "Pending"
        ended, condition = end_of(there)
        error: Optional[TfxEstimatorError] = None
        if ended and ended != _SUCCEEDED:
            error = view.error(place, condition)
        # The operator may be down: a TFJob whose chief has succeeded has succeeded, whatever it still says.
        elif not ended and tasks.get(f"{job}-chief-0") != _SUCCEEDED:
            error = view.past_hope(place, there)
        if ended == _SUCCEEDED:
            view.end(LAST_WORDS_SECONDS)
        if error and not ended:
            state = "Failed"
            error.todo += f"; the operator did not end the TFJob{self._removed(job, there)}"
        return Look(state, bool(ended or error), error, tasks, view.new_lines(), view.new_notices())

    def _removed(self, job: str, there: Object) -> str:
        """Deletes a TFJob that nobody else ends; what came of it is told beside the error, which counts more."""
        try:
            self._request(lambda: self._kube.delete(job, there["metadata"]["uid"]))
        except (LostError, TfxEstimatorError):
            return f", which goes on and costs: {self._kube.kubectl(f'delete tfjob {job}')}"
        return ", and it is deleted"

    def cancel(self, job: str) -> None:
        """See `job.Service`."""
        there = self._request(lambda: self._kube.read(job))
        if there is not None and self._is_mine(there):
            self._request(lambda: self._kube.delete(job, there["metadata"]["uid"]))

    def address(self, job: str) -> str:
        """See `job.Service`."""
        return f"{self._kube.host}/apis/kubeflow.org/v1/namespaces/{self._kube.namespace}/tfjobs/{job}"

    def place(self) -> Mapping[str, Any]:
        """See `job.Service`."""
        kube = self._kube
        return {"context": kube.context, "namespace": kube.namespace, "host": kube.host, "uid": self._uid}

    def close(self) -> None:
        """See `job.Service`."""
        # Removes the ConfigMap of a start that was given up.
        self._withdraw()
        if self._view is not None:
            self._view.end(0.0)

    def _start(self, again: bool) -> Started:
        config_map, job = yaml.safe_load_all(self._text)
        name = job["metadata"]["name"]
        job["metadata"].setdefault("annotations", {})[SUBMISSION] = self._digest
        began = time.monotonic()
        while True:
            there = self._request(lambda: self._kube.read(name))
            try:
                if there is None:
                    # The ConfigMap's name is a digest of its contents. Signals are held back, so that `_made` always
                    # knows of what was created.
                    with signals.held():
                        self._made = self._request(lambda: self._kube.create_config_map(config_map)) or self._made
                    there = self._request(lambda: self._kube.create(job))
                    self._uid = there["metadata"]["uid"]
                    self._own(config_map, there)
                    return Started(name, True)
            except TakenError:
                continue  # by somebody else just now, or by a try whose answer was lost
            if self._goes_on(there, again):
                self._uid = there["metadata"]["uid"]
                # The answer to whoever created it may have been lost before it did this.
                self._own(config_map, there)
                return Started(name, False, end_of(there)[0] or "goes on")
            if "deletionTimestamp" not in there["metadata"]:
                self._request(partial(self._kube.delete, name, there["metadata"]["uid"]))
            if time.monotonic() - began > _DELETED_SECONDS:
                raise PipelineError(
                    f"the TFJob {self._full_name(name)} of an earlier submission was deleted, and is still there",
                    expected="its end, and that of its pods",
                    todo=f"see what holds it: {self._kube.kubectl('get tfjob,pods')}",
                )
            time.sleep(1.0)

    def _withdraw(self) -> None:
        """Leaves none of the user's code behind where no TFJob came of it, as far as the cluster tells."""
        if self._made is None:
            return
        made, name, self._made = self._made, self._made["metadata"]["name"], None
        _, job = yaml.safe_load_all(self._text)
        try:
            there = self._request(lambda: self._kube.read(job["metadata"]["name"]))
            if there is not None and self._is_this(there):
                # The answer to its creation was not waited for.
                self._own(made, there)
            else:
                self._request(lambda: self._kube.delete_config_map(made))
        except (LostError, TfxEstimatorError) as error:
            todo = self._kube.kubectl(f"delete configmap {name}")
            logger.warning(f"the ConfigMap {name}, with your code, stays: {short(error)}; delete it: {todo}")

    def _own(self, config_map: Object, there: Object) -> None:
        """Has the ConfigMap go with the TFJob, which runs in any case."""
        try:
            self._request(lambda: self._kube.own_config_map(config_map, there))
        except PipelineError as error:
            name = config_map["metadata"]["name"]
            logger.warning(f"the ConfigMap {name}, with your code, stays when the TFJob has gone: {error.what}")

    def _goes_on(self, there: Object, again: bool) -> bool:
        """Is a TFJob that is there this submission, done or under way; not one that failed, or is being deleted.

        Raises:
            PipelineError: It is another one, and goes on.
        """
        name = self._full_name(there["metadata"]["name"])
        digest, ended = notes_of(there).get(SUBMISSION), end_of(there)[0]
        deleting = "deletionTimestamp" in there["metadata"]
        if digest != self._digest and not ended and not deleting:
            what = "another submission of this pipeline goes on" if digest else "it was not made by `submit`"
            raise PipelineError(
                f"there is a TFJob {name} already: {what}",
                expected="none of this name, or one that has ended",
                todo="wait for its end, or delete it: "
                + self._kube.kubectl(f"delete tfjob {there['metadata']['name']}"),
            )
        if digest != self._digest or deleting:
            return False
        return ended == "" or (ended == _SUCCEEDED and not again)

    def _is_this(self, there: Object) -> bool:
        """Is it what is submitted now."""
        return notes_of(there).get(SUBMISSION) == self._digest and "deletionTimestamp" not in there["metadata"]

    def _is_mine(self, there: Object) -> bool:
        return self._uid in (None, there["metadata"]["uid"])

    def _gone(self, job: str, there: Optional[Object]) -> TfxEstimatorError:
        if there is not None:
            what = "it is not there: another submission of this name has replaced it"
            return failed(self._full_name(job), "DELETED", what, {}, "follow that one, from where it was submitted")
        # A TFJob that was never seen may or may not have had a time to live.
        ttl = self._seen["spec"].get("runPolicy", {}).get("ttlSecondsAfterFinished") if self._seen else ""
        if ttl is None:
            todo = "submit it again, if nobody wanted that"
            return failed(self._full_name(job), "DELETED", "it is not there: somebody has deleted it", {}, todo)
        return PipelineError(
            f"the TFJob {self._full_name(job)} was removed, and its end is not known: it is not there",
            expected="a TFJob that is there until its end was seen; deploy.tfjob.ttl_seconds_after_finished removes it",
            todo=f"see deploy.pipeline_root for what it came to; {GOES_ON}",
        )

    def _full_name(self, name: str) -> str:
        return f"{self._kube.namespace}/{name}"

    def _request(self, ask: Callable[[], _Told]) -> _Told:
        try:
            return ask()
        except MissingError as error:
            raise PipelineError(
                f"the Kubernetes cluster does not have what the TFJob needs: {error}",
                expected="the namespace of deploy.tfjob.namespace",
                todo=f"correct it, or create it: see `{api.kubectl('get namespaces', self._kube.context)}`",
            ) from error
        except api.LostError as error:
            if self._view is not None:
                self._view.was_lost()
            raise LostError(str(error)) from error
