"""Profiles the declared steps of one task, for TensorBoard and as text."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.tsl.profiler.protobuf import xplane_pb2
from tfx.dsl.io import fileio

from tfx_estimator.components.files import read_json
from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.profiling import trace
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import ESTIMATOR
from tfx_estimator.pipeline.config.runtime import PROFILE_JSON, PROFILE_TEXT, PROFILES, Profile
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Least steps that a resumed training runs before its profile.
_WARM_UP = 10
# The undeclared profile of pipeline_parallel, in a temporary folder.
_OF_A_PIPELINE = Profile(start_step=20, steps=5)
_TEMPORARY = "pipeline_profile"
# The key of the declared profile in a summary.
_DECLARED = "declared"
# The name of a task's folder; other folders belong to the user's code.
_TASK = re.compile(r"[a-z_]+-\d+")
_COORDINATES = (
    "This task schedules the steps, and runs none of their operations: the workers of a parameter_server training do, "
    "on the Keras paths without a profile of their own. So no shares are given here."
)


class Profiler(Observer):
    """Starts and stops the profile of a task, between two of its steps.

    Args:
        declared: The steps; if `section` declares no profile, it measures how long the stages of a pipeline wait.
    """

    def __init__(
        self, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter, declared: Profile
    ) -> None:
        # False for a pipeline's temporary profile.
        self._keeps = section.profile is not None
        self._folder = os.path.join(folder, PROFILES, task.name) if self._keeps else os.path.join(folder, _TEMPORARY)
        self._section = section
        self._task = task
        self._progress = progress
        self._declared = declared
        self._first: Optional[int] = None
        self._began: Optional[int] = None
        # The last step; an asynchronous worker counts its own, while `end` gets the global one.
        self._at = 0
        self._ended = False

    @classmethod
    def of(cls, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter) -> Optional[Profiler]:
        """Returns the declared profiler, or a pipeline's; None without either, or if this task runs no steps."""
        # A profile would distort the measurement of `bench`.
        profiles_pipeline = section.pipeline_parallel and not Window.of_environment()
        declared = section.profile or (_OF_A_PIPELINE if profiles_pipeline else None)
        return cls(section, folder, task, progress, declared) if declared and task.trains else None

    @property
    def edges(self) -> Sequence[int]:
        """The global steps after which the profile begins and ends."""
        first = self._declared.start_step if self._first is None else self._first
        return first, first + self._declared.steps

    def begin(self, step: int) -> None:
        """See Observer; only the first call sets where training starts."""
        self._at = step
        if self._first is None:
            # A resumed training traces and warms up in its first steps as well.
            self._first = max(self._declared.start_step, step + _WARM_UP if step else 0)
            self._ended = self._keeps and _is_of(self._folder, self._declared)

    def before_step(self, step: int) -> None:
        """Starts the profile when due; after a checkpoint is written, so that it is not profiled."""
        if not self._ended and self._began is None and step >= self.edges[0]:
            with self._ignoring_failures():
                self._began = step
                tf.profiler.experimental.start(self._folder)

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Stops the profile when due."""
        self._at = step
        self.before_save(step)

    def before_save(self, step: int) -> None:
        """Stops the profile when due, before a checkpoint is written and evaluated."""
        began = self._began
        if began is not None and not self._ended and step >= max(self.edges[1], began + self._declared.steps):
            self._end(began, step)

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """Stops a profile with fewer steps than declared."""
        if self._ended:
            return
        if self._began is not None:
            self._end(self._began, self._at)
            return
        self._ended = True
        if self._keeps:
            self._notice(f"training ended at step {self._at:,}, before the profile began, after step {self.edges[0]:,}")

    def _end(self, began: int, step: int) -> None:
        self._ended = True
        with self._ignoring_failures():
            tf.profiler.experimental.stop()
            self._report(step - began)

    @contextlib.contextmanager
    def _ignoring_failures(self) -> Iterator[None]:
        """Continues training when profiling fails."""
        try:
            yield
        except (OSError, ValueError, DecodeError, tf.errors.OpError) as error:
            self._ended = True
            self._notice(f"the profile of {self._task.name} failed, and training continues: {error}")

    def _notice(self, text: str) -> None:
        self._progress.write(Event.NOTICED, text=f"trainer.profile: {text}")

    def _report(self, steps: int) -> None:
        """Writes the summary next to the profile, and reports it; for a pipeline reports how long its stages waited."""
        files = tf.io.gfile.glob(os.path.join(self._folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = xplane_pb2.XSpace()
        with tf.io.gfile.GFile(max(files), "rb") as file:
            space.ParseFromString(file.read())
        section = self._section
        if section.pipeline_parallel and (bubbles := trace.find_bubbles(space)):
            # The median: any step may be delayed.
            self._progress.write(Event.STAGED, text=bubbles[len(bubbles) // 2].describe(section.pipeline_parallel))
        if not self._keeps:
            tf.io.gfile.rmtree(self._folder)
            return
        found = trace.summarise(space, steps, self._task.in_cluster)
        if section.distribution.train.asynchronous and section.path != ESTIMATOR:
            found.update(shares={}, advice=[_COORDINATES])
        found[_DECLARED] = self._declared.dict()
        text = trace.to_text(self._task.name, found)
        for name, content in ((PROFILE_JSON, json.dumps(found, indent=2)), (PROFILE_TEXT, text)):
            with tf.io.gfile.GFile(os.path.join(self._folder, name), "w") as file:
                file.write(content + "\n")
        self._progress.write(Event.PROFILED, text=text)


def _is_of(folder: str, declared: Optional[Profile]) -> bool:
    """Returns True if a folder holds a profile of the declared steps."""
    path = os.path.join(folder, PROFILE_JSON)
    return declared is not None and (read_json(path) or {}).get(_DECLARED) == declared.dict()


def drop_others(training_dir: str, declared: Optional[Profile]) -> None:
    """Removes profiles of steps other than declared, which a resumed training would report as its own."""
    profiles = os.path.join(training_dir, PROFILES)
    names = [name.rstrip("/") for name in (fileio.listdir(profiles) if fileio.exists(profiles) else ())]
    for name in filter(_TASK.fullmatch, names):
        if not _is_of(folder := os.path.join(profiles, name), declared):
            fileio.rmtree(folder)
