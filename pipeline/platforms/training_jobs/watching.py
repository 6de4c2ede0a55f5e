"""Watches that go on whatever becomes of the connection, each in a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Optional

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.platforms.follow import LostError
from tfx_estimator.pipeline.platforms.training_jobs.api import ExpiredError, Kube
from tfx_estimator.pipeline.platforms.training_jobs.kinds import Object

DELETED = "DELETED"
# Beside those of the server, further events of a watch: LISTED has all objects, so what it lacks has gone; then the
# error of a server that does not answer or refuses; then that it answers again.
LISTED, LOST, FOUND = "LISTED", "LOST", "FOUND"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0

# The watches.
JOB, POD = "job", "pod"


class Notice(NamedTuple):
    """What a watch says.

    Args:
        watch: `JOB` or `POD`.
        event: One of the events above.
        found: An object of Kubernetes; all that there are, where they are listed; or the error.
    """

    watch: str
    event: str
    found: Any

    @property
    def objects(self) -> list[Object]:
        """The objects that it tells of; none where it tells of the watch itself."""
        if self.event in (LOST, FOUND):
            return []
        return self.found if self.event == LISTED else [self.found]


class Watching:
    """Watches of one training job and of its pods.

    Args:
        uid: Of it; pods of an earlier one of this name are not told of.
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
        """Returns what was said next; None if nothing is, for so long."""
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
                    self._say(kind, LISTED, [each for each in found["items"] if self._is_mine(kind, each)])
                    self._versions[kind] = found["metadata"]["resourceVersion"]
                # After a lost connection the watch goes on from its last version: a list would not show what has come
                # and gone meanwhile.
                self._follow(kind, ask)
            except ExpiredError:
                self._versions[kind] = ""
            except (LostError, TfxEstimatorError) as error:
                self._notices.put(Notice(kind, LOST, error))
            except Exception as error:  # nobody would notice a watch that ended silently
                self._versions[kind] = ""
                self._notices.put(Notice(kind, LOST, LostError(f"not understood: {error!r}")))
            self._over.wait(self._waits[kind])
            self._waits[kind] = min(2 * self._waits[kind], _LONGEST_WAIT)

    def _follow(self, kind: str, ask: Callable[..., Object]) -> None:
        """Watches, again and again, until the server has forgotten where to go on, or is lost."""
        while not self._over.is_set():
            began = time.monotonic()
            for event, found in self._kube.watch(ask, self._versions[kind]):
                self._versions[kind] = found["metadata"]["resourceVersion"]
                if self._is_mine(kind, found):
                    self._say(kind, event, found)
                if self._over.is_set():
                    return
            self._say(kind, FOUND, None)
            if time.monotonic() - began < _FIRST_WAIT:  # one that is cut at once
                self._over.wait(_FIRST_WAIT)

    def _say(self, kind: str, event: str, found: Any) -> None:
        """Passes on what the server has answered."""
        self._waits[kind] = _FIRST_WAIT
        self._notices.put(Notice(kind, event, found))

    def _is_mine(self, kind: str, found: Object) -> bool:
        return kind == JOB or self._kube.kind.owns(found, self._uid)
