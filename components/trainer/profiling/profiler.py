"""Profiles the declared steps of one task, for TensorBoard and as text."""

from __future__ import annotations

import json
import os
from typing import Optional

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfx_estimator.components.trainer.profiling import trace
from tfx_estimator.components.trainer.profiling.bubble import find_bubbles
from tfx_estimator.components.trainer.profiling.kept import DECLARED, is_of
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import ESTIMATOR
from tfx_estimator.pipeline.config.parallel import PipelineParallel
from tfx_estimator.pipeline.config.runtime import PROFILE_JSON, PROFILE_TEXT, PROFILES, Profile
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Steps that a training that goes on does before its profile.
_WARM_UP = 10
# Where none are declared.
_OF_A_PIPELINE = Profile(start_step=20, steps=5)
_PASSING = "pipeline_profile"
_COORDINATES = (
    "This task hands out the steps, and runs none of their operations: the workers of a parameter_server training do, "
    "on the Keras paths without a profile of their own. So nothing is said of shares here."
)


class Profiler:
    """Starts and ends the profile of a task, between two of its steps.

    Args:
        task: Which task this is.
        progress: Where to report.
        coordinates: Does it only hand out steps, which others run.
        pipeline: The declared pipeline, of whose stages it tells how long they wait.
        keeps: Is the profile kept, and summed up.
    """

    def __init__(
        self,
        declared: Profile,
        folder: str,
        task: TaskSpec,
        progress: ProgressWriter,
        coordinates: bool = False,
        pipeline: Optional[PipelineParallel] = None,
        keeps: bool = True,
    ) -> None:
        self._declared = declared
        self._folder = os.path.join(folder, PROFILES, task.name) if keeps else os.path.join(folder, _PASSING)
        self._task = task
        self._progress = progress
        self._coordinates = coordinates
        self._pipeline = pipeline
        self._keeps = keeps
        self._first = declared.start_step
        self._started = False
        self._began: Optional[int] = None
        self._ended = False

    @classmethod
    def of(cls, section: TrainerSection, folder: str, task: TaskSpec, progress: ProgressWriter) -> Optional[Profiler]:
        """Returns what is declared, or looks into a pipeline; None if nothing is, or this task does no steps.

        Args:
            progress: Where it reports.
        """
        pipeline, keeps = section.pipeline_parallel, section.profile is not None
        # Not where the time of steps is measured.
        declared = section.profile or (_OF_A_PIPELINE if pipeline and not Window.of_environment() else None)
        if declared is None or not task.trains:
            return None
        coordinates = section.distribution.train.asynchronous and section.path != ESTIMATOR
        return cls(declared, folder, task, progress, coordinates, pipeline, keeps)

    @property
    def edges(self) -> tuple[int, int]:
        """The global steps after which it begins and ends."""
        return self._first, self._first + self._declared.steps

    def at(self, step: int, is_last: bool = False, begins: bool = True) -> None:
        """Begins or ends, where it is time; the first call tells where training starts.

        Args:
            is_last: Does none follow.
            begins: May it begin: not before a checkpoint is written, which would be profiled too.
        """
        if not self._started:
            self._started = True
            if step:
                # What a training that goes on does first builds and warms up as well.
                self._first = max(self._first, step + _WARM_UP)
            self._ended = self._keeps and is_of(self._folder, self._declared)
        if self._ended:
            return
        try:
            self._move(step, is_last, begins)
        except (OSError, ValueError, DecodeError, tf.errors.OpError) as error:
            self._ended = True
            self._notice(f"the profile of {self._task.name} was not made, and training goes on: {error}")

    def _move(self, step: int, is_last: bool, begins: bool) -> None:
        first, last = self.edges
        if self._began is None:
            if is_last and begins:
                self._ended = True
                if self._keeps:
                    self._notice(f"training ended at step {step:,}, before the profile began, after step {first:,}")
            elif step >= first and begins:
                self._began = step
                tf.profiler.experimental.start(self._folder)
        elif is_last or step >= max(last, self._began + self._declared.steps):
            self._ended = True
            tf.profiler.experimental.stop()
            self._tell(step - self._began)

    def _notice(self, text: str) -> None:
        self._progress.write(Event.NOTICED, text=f"trainer.profile: {text}")

    def _tell(self, steps: int) -> None:
        """Writes the summary beside the profile, and reports it; of a pipeline how long its stages waited."""
        files = tf.io.gfile.glob(os.path.join(self._folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = xplane_pb2.XSpace()
        with tf.io.gfile.GFile(max(files), "rb") as file:
            space.ParseFromString(file.read())
        if self._pipeline and (bubbles := find_bubbles(space)):
            # The one in the middle: a step may be late for any reason.
            self._progress.write(Event.STAGED, text=bubbles[len(bubbles) // 2].tell(self._pipeline))
        if not self._keeps:
            tf.io.gfile.rmtree(self._folder)
            return
        found = trace.summarise(space, steps, self._task.in_cluster)
        if self._coordinates:
            found.update(shares={}, advice=[_COORDINATES])
        found[DECLARED] = self._declared.dict()
        text = trace.to_text(self._task.name, found)
        for name, content in ((PROFILE_JSON, json.dumps(found, indent=2)), (PROFILE_TEXT, text)):
            with tf.io.gfile.GFile(os.path.join(self._folder, name), "w") as file:
                file.write(content + "\n")
        self._progress.write(Event.PROFILED, text=text)
