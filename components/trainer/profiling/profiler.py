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

from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.profiling import trace
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import ESTIMATOR
from tfx_estimator.pipeline.config.runtime import PROFILE_JSON, PROFILE_TEXT, PROFILES, Profile
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Steps that a training that goes on does before its profile.
_WARM_UP = 10
# Where none are declared.
_OF_A_PIPELINE = Profile(start_step=20, steps=5)
_PASSING = "pipeline_profile"
# In a summary: what was declared.
_DECLARED = "declared"
# A task's folder; what the user's own code has put beside it is not ours.
_TASK = re.compile(r"[a-z_]+-\d+")
_COORDINATES = (
    "This task hands out the steps, and runs none of their operations: the workers of a parameter_server training do, "
    "on the Keras paths without a profile of their own. So nothing is said of shares here."
)


class Profiler(Observer):
    """Starts and ends the profile of a task, between two of its steps.

    Args:
        declared: Which steps; where `section` declares none, of a pipeline whose stages it tells how long they wait.
    """

    def __init__(
        self, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter, declared: Profile
    ) -> None:
        # Is the profile kept, and summed up.
        self._keeps = section.profile is not None
        self._folder = os.path.join(folder, PROFILES, task.name) if self._keeps else os.path.join(folder, _PASSING)
        self._section = section
        self._task = task
        self._progress = progress
        self._declared = declared
        self._first: Optional[int] = None
        self._began: Optional[int] = None
        # The last step: an asynchronous worker's by its own count, and `end` is told the global one.
        self._at = 0
        self._ended = False

    @classmethod
    def of(cls, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter) -> Optional[Profiler]:
        """Returns what is declared, or looks into a pipeline; None if nothing is, or this task does no steps."""
        # Not where the time of steps is measured.
        looks = section.pipeline_parallel and not Window.of_environment()
        declared = section.profile or (_OF_A_PIPELINE if looks else None)
        return cls(section, folder, task, progress, declared) if declared and task.trains else None

    @property
    def edges(self) -> Sequence[int]:
        """The global steps after which it begins and ends."""
        first = self._declared.start_step if self._first is None else self._first
        return first, first + self._declared.steps

    def begin(self, step: int) -> None:
        """See Observer; the first call tells where training starts."""
        self._at = step
        if self._first is None:
            # What a training that goes on does first builds and warms up as well.
            self._first = max(self._declared.start_step, step + _WARM_UP if step else 0)
            self._ended = self._keeps and _is_of(self._folder, self._declared)

    def before_step(self, step: int) -> None:
        """Begins, where it is time: after a checkpoint is written, which would be profiled too."""
        if not self._ended and self._began is None and step >= self.edges[0]:
            with self._going_on():
                self._began = step
                tf.profiler.experimental.start(self._folder)

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Ends, where it is time."""
        self._at = step
        self.before_save(step)

    def before_save(self, step: int) -> None:
        """The same before a checkpoint is written, and evaluated."""
        began = self._began
        if began is not None and not self._ended and step >= max(self.edges[1], began + self._declared.steps):
            self._end(began, step)

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """Ends a profile that training has not filled."""
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
        with self._going_on():
            tf.profiler.experimental.stop()
            self._tell(step - began)

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        """Has training go on without a profile that cannot be made."""
        try:
            yield
        except (OSError, ValueError, DecodeError, tf.errors.OpError) as error:
            self._ended = True
            self._notice(f"the profile of {self._task.name} was not made, and training goes on: {error}")

    def _notice(self, text: str) -> None:
        self._progress.write(Event.NOTICED, text=f"trainer.profile: {text}")

    def _tell(self, steps: int) -> None:
        """Writes the summary beside the profile, and reports it; of a pipeline how long its stages waited."""
        files = tf.io.gfile.glob(os.path.join(self._folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = xplane_pb2.XSpace()
        with tf.io.gfile.GFile(max(files), "rb") as file:
            space.ParseFromString(file.read())
        section = self._section
        if section.pipeline_parallel and (bubbles := trace.find_bubbles(space)):
            # The one in the middle: a step may be late for any reason.
            self._progress.write(Event.STAGED, text=bubbles[len(bubbles) // 2].tell(section.pipeline_parallel))
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
    """Tells whether a task's profile was made, of the steps that are declared; None are none."""
    path = os.path.join(folder, PROFILE_JSON)
    if declared is None or not fileio.exists(path):
        return False
    try:
        with fileio.open(path) as file:
            found = json.loads(file.read())
    except ValueError:
        return False
    return isinstance(found, dict) and found.get(_DECLARED) == declared.dict()


def drop_others(training_dir: str, declared: Optional[Profile]) -> None:
    """Removes profiles of other steps than are declared now, which a training that goes on would tell as its own."""
    profiles = os.path.join(training_dir, PROFILES)
    names = [name.rstrip("/") for name in (fileio.listdir(profiles) if fileio.exists(profiles) else ())]
    for name in filter(_TASK.fullmatch, names):
        if not _is_of(folder := os.path.join(profiles, name), declared):
            fileio.rmtree(folder)
