"""The Keras paths: train, evaluate, export, whichever of it is this task's part."""

from __future__ import annotations

import os
import time
from typing import Optional

import tensorflow as tf
from tfx.utils import path_utils

from tfx_estimator.components.trainer import export, seeds
from tfx_estimator.components.trainer.declared_input import DeclaredInput, declared_input
from tfx_estimator.components.trainer.keras import drivers
from tfx_estimator.components.trainer.keras.curves import Curves
from tfx_estimator.components.trainer.keras.evaluation import Evaluation
from tfx_estimator.components.trainer.keras.measuring import Meter
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saver import Saver, latest_checkpoint, step_of
from tfx_estimator.components.trainer.keras.serving import export_model
from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.stop import StoppedByRequestError
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN, EVALUATOR
from tfx_estimator.components.trainer.settings import KERAS
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.components.trainer.task.fn_args import make_fn_args
from tfx_estimator.data.features import IMAGE
from tfx_estimator.model_fn.strategies import configure_devices, make_keras_strategy
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import ExportError, PipelineError

_TF_CONFIG = "TF_CONFIG"
_LOOK_SECONDS = 0.5


class KerasPath:
    """Trains the declared model by `fit`, or by a loop of our own: `trainer.path` says which."""

    def run(self, context: TaskContext) -> None:
        """See Path."""
        if context.settings.trainer is None:
            raise PipelineError(
                "the Keras paths train what a declaration names, and there is none",
                expected="Settings(declaration=…)",
                todo="name a module_file with a run_fn, which may train a Keras model by itself",
            )
        _Task(context, context.settings.trainer).run()


class _Task:
    """One task of a training."""

    def __init__(self, context: TaskContext, section: TrainerSection) -> None:
        self._context = context
        self._task = context.task
        self._progress = context.progress
        self._folder = context.job.training_dir
        if context.task.type == DRY_RUN:
            section = section.copy(update={"train_steps": 1, "eval_steps": 1})
        self._section = section

    def run(self) -> None:
        """Does this task's part."""
        train, evaluate = self._strategies()
        self._progress.write(Event.STARTED)
        if self._trains:
            self._train(train)
        if self._task.in_cluster:
            self._progress.write(Event.TRAINED)
            return
        evaluation = Evaluation(
            self._maker(), self._declared().reader, evaluate, self._section.eval_steps, self._folder, self._progress
        )
        if self._task.type == EVALUATOR:
            checkpoint = self._follow(evaluation)
        else:
            checkpoint = latest_checkpoint(self._folder) or ""
            if not checkpoint:
                raise ExportError(
                    f"training left no checkpoint in {self._folder}, so there is nothing to evaluate and export",
                    expected="a checkpoint of the last step",
                    todo="see the log of the chief",
                )
            evaluation.evaluate(checkpoint)
        self._progress.write(Event.EXPORTING)
        self._export(checkpoint)
        self._progress.write(Event.EXPORTED)

    @property
    def _trains(self) -> bool:
        return self._task.trains or self._task.type == DRY_RUN

    def _strategies(self) -> tuple[Optional[tf.distribute.Strategy], Optional[tf.distribute.Strategy]]:
        """Those of this task; before any TensorFlow op, and while TF_CONFIG is there."""
        distribution = self._context.distribution
        train = distribution.train if self._trains else TrainStrategy()
        evaluate = Strategy() if self._task.in_cluster else distribution.eval
        seeds.apply(self._section)
        configure_devices(train, evaluate)
        made = make_keras_strategy(train), make_keras_strategy(evaluate)
        # What has been read must not make another cluster of anything else.
        os.environ.pop(_TF_CONFIG, None)
        return made

    def _declared(self) -> DeclaredInput:
        declared = declared_input(
            make_fn_args(self._context.job), self._section, lambda: step_of(latest_checkpoint(self._folder))
        )
        declared.require(IMAGE)
        return declared

    def _maker(self) -> ModelMaker:
        settings, image = self._context.settings, self._declared().transformed_spec[IMAGE]
        shape = tuple(image.shape) if isinstance(image, tf.io.FixedLenFeature) else settings.image_shape
        return ModelMaker(self._section, len(settings.label_names), shape, image.dtype)

    def _train(self, strategy: Optional[tf.distribute.Strategy]) -> None:
        """Trains to the last step.

        Raises:
            StoppedByRequestError: The supervisor asked to stop, and the checkpoint is written.
        """
        section, used = self._section, strategy or tf.distribute.get_strategy()
        with used.scope():
            # At least 2: of 1 Keras makes a function whose number of steps does not change.
            model = self._maker().make_compiled(max(section.steps_per_execution, 2))
        saver = Saver(model, self._folder, section.keep_checkpoint_max, self._task)
        curves = Curves(self._folder) if self._task.type == CHIEF else None
        examples = section.global_batch_size / self._context.distribution.train.worker_count
        meter = Meter.of_environment(self._task, examples)
        watch = Watch(section, saver, curves, self._progress, self._task.stop_file, section.steps_per_execution, meter)
        watch.begin(saver.restore())
        if not watch.ended:
            mode, input_fn = tf.estimator.ModeKeys.TRAIN, self._declared().reader.input_fn
            input_fn = meter.wrap(input_fn) if meter else input_fn
            batches = used.distribute_datasets_from_function(lambda each: input_fn(mode, each))
            if self._context.job.path == KERAS:
                drivers.fit(model, batches, watch)
            else:
                drivers.loop(model, batches, watch, used)
        if watch.stopped:
            raise StoppedByRequestError

    def _follow(self, evaluation: Evaluation) -> str:
        """Evaluates the newest checkpoint, again and again, until it is the last.

        Returns:
            The last checkpoint.
        """
        distribution, seen, started = self._context.distribution, "", 0.0
        self._progress.write(Event.WAITING)
        time.sleep(distribution.start_delay_secs)
        while True:
            latest = latest_checkpoint(self._folder) or ""
            if latest in ("", seen) or time.monotonic() - started < distribution.throttle_secs:
                time.sleep(_LOOK_SECONDS)
                continue
            started = time.monotonic()
            try:
                evaluation.evaluate(latest)
            except (tf.errors.NotFoundError, tf.errors.DataLossError):
                # The chief keeps a few checkpoints only, and may have removed this one meanwhile.
                if latest_checkpoint(self._folder) == latest:
                    raise
                continue
            seen = latest
            if step_of(latest) >= (self._section.train_steps or 0):
                return latest

    def _export(self, checkpoint: str) -> None:
        settings, exports = self._context.settings, self._context.job.exports_dir
        folder = os.path.join(self._folder, "export")
        export_model(self._maker(), checkpoint, self._declared(), settings.image_shape, settings.label_names, folder)
        export.check(folder)
        export.adopt(folder, path_utils.serving_model_dir(exports))
        tf.io.gfile.rmtree(folder)
