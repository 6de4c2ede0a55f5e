"""Watches that go on whatever becomes of the connection, each in a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from tfx_estimator.components.trainer.tfjob.api import ExpiredError, Kube, LostError, Object
from tfx_estimator.pipeline.errors import TfxEstimatorError

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
# What a watch says beside these: all that there is now, of which what is missing has gone; the error of a server that
# does not answer, or refuses; and that it answers again.
LISTED, LOST, FOUND = "LISTED", "LOST", "FOUND"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0

# Which watch, what it says, and of what.
Said = tuple[str, str, Any]


class Watching:
    """Watches of one TFJob and of its pods.

    Args:
        kube: The cluster.
        name: Of the TFJob.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube = kube
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._over = threading.Event()
        # What each watch has seen.
        self._versions = {"job": "", "pod": ""}
        for kind, ask in (("job", partial(kube.jobs, f"metadata.name={name}")), ("pod", partial(kube.pods, name))):
            threading.Thread(target=self._watch, args=(kind, ask), name=f"watch-{kind}", daemon=True).start()

    def next(self, seconds: float) -> Optional[Said]:
        """Returns what was said next; None if nothing is, for so long."""
        try:
            return self._said.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Ends the watches, within some seconds."""
        self._over.set()

    def _watch(self, kind: str, ask: Callable[..., Object]) -> None:
        wait = _FIRST_WAIT
        while not self._over.is_set():
            try:
                if not self._versions[kind]:
                    found = ask()
                    self._said.put((kind, LISTED, found["items"]))
                    self._versions[kind] = found["metadata"]["resourceVersion"]
                # After a lost connection from where it was: a list does not tell of what has come and gone meanwhile.
                self._follow(kind, ask)
                wait = _FIRST_WAIT
            except ExpiredError:
                self._versions[kind] = ""
            except (LostError, TfxEstimatorError) as error:
                self._said.put((kind, LOST, error))
            self._over.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _follow(self, kind: str, ask: Callable[..., Object]) -> None:
        """Watches, again and again, until the server has forgotten where to go on, or is lost."""
        while not self._over.is_set():
            began = time.monotonic()
            for event, found in self._kube.watch(ask, self._versions[kind]):
                self._versions[kind] = found["metadata"]["resourceVersion"]
                self._said.put((kind, event, found))
                if self._over.is_set():
                    return
            self._said.put((kind, FOUND, None))
            if time.monotonic() - began < _FIRST_WAIT:  # one that is cut at once
                self._over.wait(_FIRST_WAIT)
