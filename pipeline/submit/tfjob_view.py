"""A compiled TFJob while it is followed: its pods, what they wait for, how often they are started again, the log."""

from __future__ import annotations

import glob
import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.components.trainer.tfjob.api import Kube, Object
from tfx_estimator.components.trainer.tfjob.endings import RESTARTING, is_suspended, notes_of, state_of
from tfx_estimator.components.trainer.tfjob.failures import EXIT_CODE, Failures, said_of
from tfx_estimator.components.trainer.tfjob.manifest import PENDING_TIMEOUT
from tfx_estimator.components.trainer.tfjob.pending import Pending
from tfx_estimator.components.trainer.tfjob.pods import PodFailure, Pods
from tfx_estimator.components.trainer.tfjob.watching import DELETED, POD, Watching
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.submit.job import failed

# Time for the logs to arrive in full.
LAST_WORDS_SECONDS = 5.0


class TfJobView:
    """What was seen of a TFJob, from the first look on.

    Args:
        there: The TFJob, as the server tells of it.
        folder: For the logs of its pods.
    """

    def __init__(self, kube: Kube, job: str, there: Object, folder: str) -> None:
        self._kube, self._job, self._folder = kube, job, folder
        replicas, run_policy = there["spec"]["tfReplicaSpecs"].values(), there["spec"].get("runPolicy", {})
        policies = {each["restartPolicy"] for each in replicas}
        self._policy = EXIT_CODE if EXIT_CODE in policies else "Never" if policies == {"Never"} else ""
        self._limit = run_policy.get("backoffLimit", math.inf)
        self._restarts = _Restarts()
        self._failures = Failures(self._policy, self._restarts)
        self._pods = Pods(kube, folder)
        timeout = float(notes_of(there).get(PENDING_TIMEOUT, math.inf))
        self._pending = Pending(self._pods, sum(each.get("replicas", 1) for each in replicas), timeout)
        # A pod that failed, and was deleted and started again, is in no list by the next look.
        self._watching = Watching(kube, job, there["metadata"]["uid"])
        # The chief's pods, in order of appearance; and the number of bytes shown of each one's log.
        self._chiefs: list[str] = []
        self._shown: dict[str, int] = {}

    def hear(self, pods: list[Object]) -> dict[str, str]:
        """Takes note of what has become of the pods.

        Returns:
            The phase of each, by its name.
        """
        while notice := self._watching.next(0.0):
            for each in notice.objects if notice.watch == POD else ():
                self._note([self._pods.take(each, deleted=notice.event == DELETED, with_log=False)])
        self._note(self._pods.take_all(pods))
        self._failures.settle()
        for each in pods:
            uid = each["metadata"]["uid"]
            if each["metadata"]["name"] == f"{self._job}-chief-0" and uid not in self._chiefs:
                self._chiefs.append(uid)
        return {each["metadata"]["name"]: each.get("status", {}).get("phase", "") for each in pods}

    def past_hope(self, place: str, there: Object) -> Optional[TfxEstimatorError]:
        """Returns why a TFJob is to be ended that its operator leaves at work; None if it is not."""
        if self._failures.lingers and state_of(there) == RESTARTING:
            return self.error(place)
        if self._policy == EXIT_CODE and self._failures.restarts > self._limit:
            return self.error(place)
        if self._pending.all_run or is_suspended(there):
            self._pending.begin()
        elif self._pending.is_over:
            self.end(LAST_WORDS_SECONDS)
            return self._pending.error(place, self._kube.kubectl("get events"))
        return None

    def error(self, place: str, condition: Optional[Mapping[str, Any]] = None) -> TfxEstimatorError:
        """Returns what the TFJob failed by, once the logs have come to their ends.

        Args:
            condition: By which the operator has ended it; None if it was not the operator.
        """
        self.end(LAST_WORDS_SECONDS)
        todo = self._kube.kubectl(f"describe tfjob {self._job}")
        return self._failures.error(place, condition, runs_pipeline=True) or failed(
            place, "Failed", said_of(condition or {}), {}, todo
        )

    def new_lines(self) -> tuple[str, ...]:
        """Returns the whole lines that the chief has printed since."""
        found: list[str] = []
        names = [os.path.join(glob.escape(self._folder), f"{self._job}-chief-0.{uid[:8]}*.log") for uid in self._chiefs]
        for path in itertools.chain.from_iterable(sorted(glob.glob(name)) for name in names):
            with open(path, "rb") as file:
                file.seek(seen := self._shown.get(path, 0))
                whole, mark, _ = file.read().rpartition(b"\n")
            self._shown[path] = seen + len(whole) + len(mark)
            found += whole.decode(errors="replace").splitlines()
        return tuple(found)

    def new_notices(self) -> tuple[str, ...]:
        """Returns what pods wait for, and why they were started again; each once."""
        restarts, self._restarts.told = self._restarts.told, []
        return (*restarts, *(() if self._pending.all_run else self._pending.notices()))

    def was_lost(self) -> None:
        """Takes note of it that nothing could be seen for a while: pods may have started meanwhile."""
        self._pending.begin()

    def end(self, seconds: float) -> None:
        """Lets the logs come to their ends; see `Pods.end`."""
        self._watching.end()
        self._pods.end(seconds)

    def _note(self, failures: Sequence[Optional[PodFailure]]) -> None:
        if self._pending.all_run:
            self._failures.all_run()
        for each in filter(None, failures):
            self._failures.note(each)


class _Restarts:
    """See `failures.Restarts`."""

    def __init__(self) -> None:
        self.noted_at = -math.inf
        self.told: list[str] = []

    def restarted(self, cause: str, what: str) -> None:
        """See `failures.Restarts`."""
        self.noted_at = time.monotonic()
        self.told.append(f"{cause}; {what}")
