"""Watches that survive lost connections, each in its own thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Optional

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs.api import ExpiredError, Kube
from tfx_estimator.pipeline.platforms.training_jobs.kinds import Object

DELETED = "DELETED"
# Events in addition to the server's: LISTED has all existing objects; LOST has the error of a server that does not
# answer, or refuses; FOUND means that it answers again.
LISTED, LOST, FOUND = "LISTED", "LOST", "FOUND"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0

# The watches.
JOB, POD = "job", "pod"


class Notice(NamedTuple):
    """An event of a watch.

    Args:
        watch: `JOB` or `POD`.
        event: One of the events above.
        found: An object; all objects for LISTED; the error for LOST.
    """

    watch: str
    event: str
    found: Any

    @property
    def objects(self) -> list[Object]:
        """Its objects; empty for an event of the watch itself."""
        if self.event in (LOST, FOUND):
            return []
        return self.found if self.event == LISTED else [self.found]


class Watching:
    """Watches of one training job and of its pods.

    Args:
        uid: Of the job; pods of an earlier job of this name are ignored.
    """

    def __init__(self, kube: Kube, name: str, uid: str) -> None:
        self._kube, self._uid = kube, uid
        self._notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._over = threading.Event()
        # The last resource version that each watch has seen.
        self._versions = {JOB: "", POD: ""}
        self._waits = dict.fromkeys(self._versions, _FIRST_WAIT)
        for kind, ask in ((JOB, partial(kube.jobs, f"metadata.name={name}")), (POD, partial(kube.pods, name))):
            threading.Thread(target=self._watch, args=(kind, ask), name=f"watch-{kind}", daemon=True).start()

    def next(self, seconds: float) -> Optional[Notice]:
        """Returns the next event; None if there is none within the given seconds."""
        try:
            return self._notices.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Ends the watches, within some seconds."""
        self._over.set()

    def _watch(self, kind: str, ask: Callable[..., Object]) -> None:
        while not self._over.is_set():
            try:
                if not self._versions[kind]:
                    found = ask()
                    self._put(kind, LISTED, [each for each in found["items"] if self._is_mine(kind, each)])
                    self._versions[kind] = found["metadata"]["resourceVersion"]
                # After a lost connection the watch continues from its last version: a list would not show what was
                # created and deleted meanwhile.
                self._follow(kind, ask)
            except ExpiredError:
                self._versions[kind] = ""
            except (UnavailableError, TfxEstimatorError) as error:
                self._notices.put(Notice(kind, LOST, error))
            except Exception as error:  # a watch must not end silently
                self._versions[kind] = ""
                self._notices.put(Notice(kind, LOST, UnavailableError(f"not understood: {error!r}")))
            self._over.wait(self._waits[kind])
            self._waits[kind] = min(2 * self._waits[kind], _LONGEST_WAIT)

    def _follow(self, kind: str, ask: Callable[..., Object]) -> None:
        """Watches until the server no longer has the version, or is lost."""
        while not self._over.is_set():
            began = time.monotonic()
            for event, found in self._kube.watch(ask, self._versions[kind]):
                self._versions[kind] = found["metadata"]["resourceVersion"]
                if self._is_mine(kind, found):
                    self._put(kind, event, found)
                if self._over.is_set():
                    return
            self._put(kind, FOUND, None)
            if time.monotonic() - began < _FIRST_WAIT:  # closed by the server at once
                self._over.wait(_FIRST_WAIT)

    def _put(self, kind: str, event: str, found: Any) -> None:
        """Queues an answer of the server."""
        self._waits[kind] = _FIRST_WAIT
        self._notices.put(Notice(kind, event, found))

    def _is_mine(self, kind: str, found: Object) -> bool:
        return kind == JOB or self._kube.kind.owns(found, self._uid)
