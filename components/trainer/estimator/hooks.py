"""Session hooks that observe an Estimator's training and evaluations."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.ops import variables
from tensorflow.python.training import training_util
from tensorflow.python.training.saving import saveable_object_util

from tfx_estimator.components.trainer.checkpoint import refuse_carried, step_of
from tfx_estimator.components.trainer.estimator.distribute import rebuild
from tfx_estimator.components.trainer.measuring import Meter, measure_server
from tfx_estimator.components.trainer.observers import SKIPPED_STEPS, Observer
from tfx_estimator.components.trainer.protocol.events import (
    Event,
    PeerLostError,
    ProgressWriter,
    StoppedByRequestError,
    stop_step,
)
from tfx_estimator.components.trainer.protocol.task_spec import PS, TaskSpec
from tfx_estimator.components.trainer.tensorboard import InputFn, first_images, histograms
from tfx_estimator.components.trainer.user_input.rows import count_rows
from tfx_estimator.model_fn.step import precision
from tfx_estimator.model_fn.user_models.warm_start import shape_of
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.runtime import TensorBoard

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 0.5
# Far past the end of any measurement.
_NEVER = 10**9
# TensorFlow appends _1 if a Keras model in the graph has taken the name for a scope.
_LOSSES = ("loss", "loss_1")
# Far more batches than a model_fn accumulates gradients of before it counts a step.
_UNMOVED_RUNS = 1_000
# For asynchronous tasks: another one, possibly restarting, may be the one that counts the steps.
_UNMOVED_SECONDS = 300.0


class ObserverHook(tf.compat.v1.train.SessionRunHook):
    """Calls observers between the steps of an Estimator, and ends training if one of them stops.

    Args:
        alone: True if each run in this process is one global step; False for asynchronous workers, which share it.
        in_step: True if the tasks of a cluster train synchronously. Such a task ends as soon as it has lost a peer: an
            Estimator would make a new session and wait forever, as a task that restarts alone cannot rejoin.
    """

    def __init__(self, observers: Sequence[Observer], alone: bool = True, in_step: bool = False) -> None:
        self._observers = observers
        self._alone = alone
        self._in_step = in_step
        self._sessions = 0

    def begin(self) -> None:
        """Finds the tensors: the global step's is the one that TensorFlow's own hooks fetch in every step."""
        self._read: dict[str, tf.Tensor] = {"step": training_util._get_or_create_global_step_read()}
        for skipped in tf.compat.v1.get_collection(precision.SKIPPED_STEPS)[:1]:
            self._read[SKIPPED_STEPS] = skipped
        # The training loss of any model_fn is the input of the Estimator's `loss` summary.
        summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
        losses = [each.op.inputs[1] for each in summaries if each.op.name in _LOSSES]
        self._loss = {"loss": losses[0]} if losses else {}

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the step that training starts from."""
        self._sessions += 1
        if self._in_step and self._sessions > 1:
            raise PeerLostError("the session to the other tasks was lost")
        self._step = int(session.run(self._read["step"]))
        for each in self._observers:
            each.begin(self._step)

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Fetches what an observer wants, and the global step if other tasks add to it; nothing in most steps."""
        for each in self._observers:
            each.before_step(self._step)
        self._wanted = any(each.wants_values for each in self._observers)
        if self._wanted:
            return tf.compat.v1.train.SessionRunArgs({**self._read, **self._loss})
        return None if self._alone else tf.compat.v1.train.SessionRunArgs({"step": self._read["step"]})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step; a fetched step is read concurrently with the update, and may be the previous one."""
        self._step = self._step + 1 if self._alone else int(run_values.results["step"])
        for each in self._observers:
            each.after_step(self._step, run_values.results if self._wanted else {})
        if any(each.stops for each in self._observers):
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Reports the last step."""
        values = session.run(self._read)
        for each in self._observers:
            each.end(int(values["step"]), values)


class AdditionsHook(ObserverHook):
    """Writes what `trainer.tensorboard` declares next to the curves.

    Args:
        every: Steps between checkpoints.
        alone: See ObserverHook.
    """

    def __init__(self, declared: TensorBoard, folder: str, input_fn: InputFn, every: int, alone: bool) -> None:
        super().__init__((), alone)
        self._declared = declared
        self._folder = folder
        self._input_fn = input_fn
        self._every = every

    def begin(self) -> None:
        """Finds the variables."""
        super().begin()
        self._variables = {each.op.name: tf.convert_to_tensor(each) for each in tf.compat.v1.trainable_variables()}

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Writes the images at the start of a training."""
        super().after_create_session(session, coord)
        self._first = self._last = self._step
        if self._declared.images and not self._step:
            self._add(first_images(self._input_fn, self._declared.images))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes the histograms of a checkpoint."""
        super().after_run(run_context, run_values)
        if self._is_due():
            # A model_fn that accumulates gradients has counted fewer steps than runs.
            self._step = int(run_context.session.run(self._read["step"]))
            if self._is_due():
                self._add_histograms(run_context.session)

    def end(self, session: Any) -> None:
        """Writes those of the last checkpoint."""
        self._step = int(session.run(self._read["step"]))
        if self._step > self._last:
            self._add_histograms(session)

    def _is_due(self) -> bool:
        # Checkpoints are counted from the step that a training resumes from.
        return (self._step - self._first) // self._every > (self._last - self._first) // self._every

    def _add_histograms(self, session: Any) -> None:
        self._last = self._step
        if self._declared.histograms:
            # In a run of their own, after the step's update.
            self._add(histograms(session.run(self._variables)))

    def _add(self, summary: bytes) -> None:
        tf.compat.v1.summary.FileWriterCache.get(self._folder).add_summary(summary, self._step)


class ObserverListener(tf.compat.v1.train.CheckpointSaverListener):
    """Calls observers before a checkpoint is written: CheckpointSaverHook runs before the hooks of a TrainSpec."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def before_save(self, session: Any, global_step_value: Any) -> None:
        """See CheckpointSaverListener."""
        for each in self._observers:
            each.before_save(int(global_step_value))


class StopRequest(Observer):
    """Ends training at the step that the supervisor requests, the same in each task.

    Tasks ignore SIGTERM: a synchronous task that stops a step before the others would leave them waiting.

    Args:
        path: The task's `stop_file`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._last = 0.0
        self._stop_at: Optional[int] = None
        self._stopped = False

    @property
    def stops(self) -> bool:
        """See Observer."""
        return self._stopped

    def after_step(self, step: int, values: Any) -> None:
        """Checks for the request ten times a second."""
        if self._stop_at is None and time.monotonic() - self._last >= _POLL_SECONDS:
            self._last = time.monotonic()
            self._stop_at = stop_step(self._path)
        self._stopped = self._stop_at is not None and step >= self._stop_at


class UnmovedStep(Observer):
    """Ends a training whose train_op never increments global_step: it would never reach `max_steps`.

    Args:
        total: `max_steps`.
        runs: Limit of runs of the train_op without a step.
        seconds: Least time without a step, in addition, unless `alone`.
    """

    def __init__(
        self, total: int, alone: bool = True, runs: int = _UNMOVED_RUNS, seconds: float = _UNMOVED_SECONDS
    ) -> None:
        self._total = total
        self._most_runs = runs
        self._seconds = 0.0 if alone else seconds

    @property
    def wants_values(self) -> bool:
        """See Observer."""
        return self._runs >= self._most_runs

    def begin(self, step: int) -> None:
        """Resets the count of runs, at a new step."""
        self._step, self._runs, self._since = step, 0, time.monotonic()

    def after_step(self, step: int, values: Any) -> None:
        """Counts the run, and compares the step after too many runs."""
        self._runs += 1
        if self._runs <= self._most_runs or "step" not in values:
            return
        if (read := int(values["step"])) != self._step:
            self.begin(read)
        elif time.monotonic() - self._since >= self._seconds:
            raise UserCodeError(
                f"the train_op ran {self._runs:,} times, and global_step stayed at {read:,}: training to step "
                f"{self._total:,} would never end",
                expected="a train_op that increments tf.compat.v1.train.get_global_step() by one in each step",
                todo="pass it as global_step to the minimize or apply_gradients of a tf.compat.v1 optimizer; set it as "
                "the iterations of a Keras optimizer; or group the train_op with its assign_add(1)",
            )


class EvaluationHook(tf.compat.v1.train.SessionRunHook):
    """Reports the progress of an evaluation, and prevents one, with its export, after a request to stop."""

    def __init__(self, progress: ProgressWriter, stop: StopRequest) -> None:
        self._progress = progress
        self._stop = stop
        self._last = 0.0
        self._batches = 0

    def begin(self) -> None:
        """Raises StoppedByRequestError after a request to stop."""
        if self._stop.stops:
            raise StoppedByRequestError

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts batches."""
        self._batches += 1
        if time.monotonic() - self._last >= _REPORT_SECONDS:
            self._last = time.monotonic()
            self._progress.write(Event.EVALUATING, batches=self._batches)


class FitHook(tf.compat.v1.train.SessionRunHook):
    """Refuses a model that does not fit the weights of an earlier day: TensorFlow assigns values of any shape."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def begin(self) -> None:
        """See SessionRunHook."""
        latest = tf.train.latest_checkpoint(self._folder)
        if latest is None or step_of(latest):
            return
        stored = tf.train.load_checkpoint(latest).get_variable_to_shape_map()
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        if not savers:
            return  # the model_fn's own, which may restore less
        # By the names that TensorFlow's Saver asks for: with slots, and their copies on other devices.
        asked = saveable_object_util.op_list_to_dict(savers[0]._var_list or variables._all_saveable_objects())
        for name, each in sorted(asked.items()):
            parts = each if isinstance(each, list) else [each]
            here = shape_of(parts) if hasattr(parts[0], "shape") else stored.get(name)
            if (there := stored.get(name)) != here:
                raise refuse_carried(f"{name} is {here} here, and {'not' if there is None else there} there")


def measured(spec: dict[str, Any], task: TaskSpec) -> dict[str, Any]:
    """Adds the measurement of `tfx-estimator bench` to a task's spec, if the environment requests one.

    Returns:
        The spec; if this task trains and is measured, with a new `train_spec`, and an `estimator` that writes no
        checkpoint during the measurement, regardless of its RunConfig.
    """
    if task.type == PS:
        measure_server(task.name)
    meter = Meter.of_environment(task)
    if meter is None:
        return spec
    train_spec, batches = spec["train_spec"], _BatchCounter()
    config = spec["estimator"].config
    estimator = rebuild(
        spec["estimator"],
        train_distribute=config.train_distribute,
        eval_distribute=config.eval_distribute,
        save_checkpoints_steps=_NEVER,
    )
    estimator._model_fn = batches.wrap(estimator._model_fn)
    hooks = (*train_spec.hooks, _MeasureHook(meter, batches))
    return {
        **spec,
        "estimator": estimator,
        "train_spec": train_spec._replace(hooks=hooks, input_fn=meter.wrap(train_spec.input_fn)),
    }


class _BatchCounter:
    """Counts the examples that this task's replicas are fed: the first dimension of any input_fn's batches.

    A static dimension costs nothing; otherwise one number per replica is fetched in each step.
    """

    def __init__(self) -> None:
        # The graph and batch size of each replica: a number, or a tensor.
        self._replicas: list[tuple[tf.Graph, Any]] = []

    def wrap(self, model_fn: Callable) -> Callable:
        """Makes a model_fn that notes its batches; with the same signature, which an Estimator inspects."""

        def counted(**arguments: Any) -> Any:
            self._note(**arguments)
            return model_fn(**arguments)

        counted.__signature__ = inspect.signature(model_fn)  # type: ignore[attr-defined]
        return counted

    def find(self) -> None:
        """Looks up the replicas of the current graph."""
        graph = tf.compat.v1.get_default_graph()
        sizes = [size for at, size in self._replicas if at is graph]
        self.dynamic = [size for size in sizes if tf.is_tensor(size)]
        self._fixed = sum(size for size in sizes if not tf.is_tensor(size))
        self.known = bool(sizes)

    def size(self, dynamic: Sequence[int]) -> int:
        """Returns the number of examples in this task's step, given the values of `self.dynamic`."""
        return self._fixed + int(sum(dynamic))

    @tf.autograph.experimental.do_not_convert
    def _note(self, features: Any, mode: str, labels: Any = None, **_: Any) -> None:
        # Labels first: a feature may have no batch dimension, such as a table.
        leaves = [leaf for leaf in tf.nest.flatten((labels, features)) if tf.is_tensor(leaf) and leaf.shape.rank != 0]
        if mode == ModeKeys.TRAIN and leaves:
            size = leaves[0].shape.rank and tf.compat.dimension_value(leaves[0].shape[0])
            size = count_rows(leaves[0]) if size is None else size
            self._replicas.append((tf.compat.v1.get_default_graph(), size))


class _MeasureHook(tf.compat.v1.train.SessionRunHook):
    """Reports each step, and its number of examples, to the meter."""

    def __init__(self, meter: Meter, batches: _BatchCounter) -> None:
        self._meter = meter
        self._batches = batches

    def begin(self) -> None:
        """Finds the global step and the batches."""
        self._tensor = tf.compat.v1.train.get_or_create_global_step()
        self._batches.find()

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Fetches the step, as the Estimator does anyway, and the batch sizes that are not static."""
        if self._meter.ended:
            return None
        return tf.compat.v1.train.SessionRunArgs((self._tensor, self._batches.dynamic))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports the step to the meter."""
        if self._meter.ended:
            return
        before, sizes = run_values.results
        # The step was read concurrently with the update, so it may be the previous one.
        step = before + 1
        if self._meter.is_due(step):
            step = int(run_context.session.run(self._tensor))
        self._meter.done(step, 1, self._batches.size(sizes) if self._batches.known else None)
