"""The versions of a model: the newest one of a folder is loaded beside the one that answers, and then takes over."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.predict.found_model import FILE, FoundModel
from tfx_estimator.pipeline.serve.servable import Servable

# TensorFlow Serving's own.
_POLL_SECONDS = 1.0


class Versions:
    """The answering version of a model.

    A request keeps the version that it began with, so none is lost when another takes over.

    Args:
        found: The first version. If its folder's name is a number, the folder around it is watched for newer ones.
        note: Called with a line for each version that was loaded, or could not be.
    """

    def __init__(self, found: FoundModel, note: Callable[[str], None]) -> None:
        self._found, self._note = found, note
        base, name = os.path.split(found.folder.rstrip("/"))
        self._base = base if name.isdigit() else ""
        self.current = Servable(found, int(name) if name.isdigit() else 1)
        self._failed: Optional[list[tuple[str, int]]] = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Watches the folder."""
        if self._base:
            self._thread.start()

    def close(self) -> None:
        """Ends watching."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        shown = ""
        while not self._ends.wait(_POLL_SECONDS):
            try:
                self.take_over()
            except Exception as error:  # of a store that does not answer now, or a version that was just removed
                if (text := f"{self._base} cannot be read: {first_line(error)}") != shown:
                    self._note(shown := text)

    def take_over(self) -> None:
        """Loads the newest version, if it is another one than the current."""
        names = (name.rstrip("/") for name in tf.io.gfile.listdir(self._base))
        whole = [name for name in names if name.isdigit() and self._is_whole(name)]
        if not whole or int(name := max(whole, key=int)) == self.current.version:
            return
        newest, folder = int(name), os.path.join(self._base, name)
        if self._failed == (state := self._state(folder)):
            return
        try:
            servable = Servable(dataclasses.replace(self._found, folder=folder), newest)
        except TfxEstimatorError as error:
            self._failed = state
            self._note(f"version {newest} is not taken: {error.what}; {self.current.version} goes on")
        else:
            self.current = servable
            self._note(f"version {newest} answers, after {servable.warmed} warm-up requests")

    def _is_whole(self, name: str) -> bool:
        return tf.io.gfile.exists(os.path.join(self._base, name, FILE))

    def _state(self, folder: str) -> list[tuple[str, int]]:
        """Returns the sizes of a version's files: it may still be copied."""
        walked = tf.io.gfile.walk(folder)
        paths = (os.path.join(inner, name) for inner, _, names in walked for name in names)
        return sorted((path, tf.io.gfile.stat(path).length) for path in paths)
