"""Profiles the declared steps of one task, for TensorBoard and as text."""

from __future__ import annotations

import json
import os
from typing import Optional

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfx_estimator.components.trainer.profiling import trace
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.pipeline.config.profile import PROFILE_JSON, PROFILE_TEXT, PROFILES, Profile
from tfx_estimator.pipeline.config.trainer import TrainerSection


class Profiler:
    """Starts and ends the profile of a task, between two of its steps.

    Args:
        declared: Which steps.
        folder: Of the training.
        task: Which task this is.
        progress: Where to report.
    """

    def __init__(self, declared: Profile, folder: str, task: TaskSpec, progress: ProgressWriter) -> None:
        self._declared = declared
        self._folder = os.path.join(folder, PROFILES, task.name)
        self._task = task
        self._progress = progress
        self._began: Optional[int] = None
        self._ended = False

    @classmethod
    def of(cls, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter) -> Optional[Profiler]:
        """Returns what is declared; None if nothing is, or this task does no steps."""
        declared = section.profile
        return cls(declared, folder, task, progress) if declared and task.trains else None

    @property
    def edges(self) -> tuple[int, int]:
        """The global steps after which it begins and ends."""
        return self._declared.start_step, self._declared.start_step + self._declared.steps

    def at(self, step: int, is_last: bool = False) -> None:
        """Begins or ends, where it is time.

        Args:
            step: Global step that is done.
            is_last: Does none follow.
        """
        first, last = self.edges
        if self._ended:
            return
        if self._began is None:
            # Training may go on from a later step: what it does first is profiled then.
            if step >= first and not is_last:
                self._began = step
                tf.profiler.experimental.start(self._folder)
        elif is_last or step >= max(last, self._began + self._declared.steps):
            self._ended = True
            tf.profiler.experimental.stop()
            self._tell(step - self._began)

    def _tell(self, steps: int) -> None:
        """Writes the summary beside the profile, and reports it."""
        files = tf.io.gfile.glob(os.path.join(self._folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = xplane_pb2.XSpace()
        with tf.io.gfile.GFile(max(files), "rb") as file:
            space.ParseFromString(file.read())
        found = trace.summarise(space, steps, self._task.in_cluster)
        text = trace.to_text(self._task.name, found)
        for name, content in ((PROFILE_JSON, json.dumps(found, indent=2)), (PROFILE_TEXT, text)):
            with tf.io.gfile.GFile(os.path.join(self._folder, name), "w") as file:
                file.write(content + "\n")
        self._progress.write(Event.PROFILED, text=text)
