"""The Keras paths: one task trains, evaluates and exports, as its type requires."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Optional

import tensorflow as tf
from tfx.utils import path_utils

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer import export, seeds
from tfx_estimator.components.trainer.best.keeper import Keeper, is_declared
from tfx_estimator.components.trainer.checkpoint import damage, step_of
from tfx_estimator.components.trainer.cluster.tf_config import VARIABLE as TF_CONFIG
from tfx_estimator.components.trainer.declared_input import DeclaredInput, declared_input, table_params
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.keras import drivers
from tfx_estimator.components.trainer.keras.curves import Additions, Curves, learning_rate_of
from tfx_estimator.components.trainer.keras.evaluation import Evaluation, Evaluations
from tfx_estimator.components.trainer.keras.model import ModelMaker, compiled_notices
from tfx_estimator.components.trainer.keras.saving import Saver, export_model
from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.measuring import Meter
from tfx_estimator.components.trainer.observers import Observer, Reporter
from tfx_estimator.components.trainer.profiling.profiler import Profiler
from tfx_estimator.components.trainer.protocol.events import Event, StoppedByRequestError, is_over
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN, EVALUATOR
from tfx_estimator.components.trainer.settings import KERAS
from tfx_estimator.components.trainer.task.user_code import make_fn_args, tell, warm_start_of
from tfx_estimator.model_fn.optim.averaging import Averaging
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_keras_strategy
from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier
from tfx_estimator.model_fn.step.kept_classifier import KeptClassifier
from tfx_estimator.model_fn.user_models.warm_start import warm_keras
from tfx_estimator.pipeline.base.errors import ExportError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection


def run(context: TaskContext) -> None:
    """Trains the declared model by `fit` or a custom loop, as `trainer.path` declares."""
    assert context.settings.trainer is not None, "the Keras paths train a declaration"
    _Task(context, context.settings.trainer).run()


class _Task:
    """One task of a training."""

    def __init__(self, context: TaskContext, section: TrainerSection) -> None:
        self._context = context
        self._task = context.task
        self._progress = context.progress
        self._folder = context.job.training_dir
        self._is_served = context.distribution.train.asynchronous
        if context.task.type == DRY_RUN:
            section = section.copy(update={"train_steps": 1, "eval_steps": 1})
        if self._is_served:
            # Reports are possible only where all workers wait.
            section = section.copy(update={"log_every_steps": drivers.stretch(section)})
        self._section = section
        # In a cluster another task evaluates.
        self._evaluations = None if self._task.in_cluster else self._make_evaluations()

    def run(self) -> None:
        """Runs the task."""
        if self._is_served and self._task.in_cluster:
            drivers.prepare(self._context.distribution.train.worker_count)
            if self._task.type != CHIEF:
                drivers.serve(self._context)
                return
        train, self._eval_strategy = self._strategies()
        self._progress.write(Event.STARTED, pid=os.getpid())
        if self._trains:
            self._train(train or tf.distribute.get_strategy())
        if self._evaluations is None:
            self._progress.write(Event.TRAINED)
            return
        if self._task.type == EVALUATOR:
            checkpoint = self._evaluations.follow(self._context.distribution, self._section.train_steps or 0)
            if self._evaluations.stop:
                # The cluster has yet to write its last checkpoint: an exporter follows.
                return
        elif not (checkpoint := tf.train.latest_checkpoint(self._folder)):
            raise ExportError(
                f"training left no checkpoint in {self._folder}, so there is nothing to evaluate and export",
                expected="a checkpoint of the last step",
                todo="see the log of the chief",
            )
        checkpoint = self._evaluations.choose(checkpoint)
        if not self._context.job.exports:
            write_whole(self._context.job.evaluated_file, "")
            return
        self._progress.write(Event.EXPORTING)
        self._export(checkpoint)
        self._progress.write(Event.EXPORTED)

    def _make_evaluations(self) -> Evaluations:
        section, folder = self._section, self._folder
        keeper = Keeper(folder, section, damage, self._progress) if is_declared(section) else None
        seconds = self._context.distribution.seconds_between_evaluations
        return Evaluations(self._make_evaluation, folder, keeper, seconds, self._progress)

    @property
    def _trains(self) -> bool:
        return self._task.trains or self._task.type == DRY_RUN

    def _strategies(self) -> tuple[Optional[tf.distribute.Strategy], Optional[tf.distribute.Strategy]]:
        """Makes this task's strategies; before any TensorFlow op, and while TF_CONFIG is set."""
        distribution = self._context.distribution
        train = distribution.train if self._trains else TrainStrategy()
        evaluate = Strategy() if self._task.in_cluster else distribution.eval
        seeds.apply(self._section)
        configure_devices(train, evaluate, cpus=self._section.logical_cpus)
        made = make_keras_strategy(train), make_keras_strategy(evaluate)
        # TF_CONFIG has been read: it must not affect anything else.
        os.environ.pop(TF_CONFIG, None)
        return made

    @functools.cached_property
    def _declared(self) -> DeclaredInput:
        return self._declare()

    def _declare(self) -> DeclaredInput:
        """Returns the examples that this task trains and evaluates with."""
        settings = self._context.settings
        declared = declared_input(
            make_fn_args(self._context.job),
            self._section,
            lambda: step_of(tf.train.latest_checkpoint(self._folder)),
            settings.task if settings.table else None,
        )
        declared.require(*filter(None, [declared.weight]))
        return declared

    def _maker(self, section: TrainerSection, trains: bool) -> ModelMaker:
        return ModelMaker.of(section, self._declared.inputs, self._params, trains)

    @functools.cached_property
    def _params(self) -> dict[str, Any]:
        settings = self._context.settings
        if not settings.table:
            return {"num_classes": len(settings.label_names), "label_names": settings.label_names}
        return table_params(self._declared, settings.task)

    def _make_evaluation(self) -> Evaluation:
        return Evaluation(
            self._maker(self._section, trains=False),
            self._declared.reader,
            self._eval_strategy,
            self._section.eval_steps,
            self._folder,
            self._progress,
        )

    def _train(self, strategy: tf.distribute.Strategy) -> None:
        """Trains to the last step, or until a request to stop."""
        section = self._section
        with strategy.scope():
            # At least 2: with 1 Keras makes a function with a fixed number of steps. A parameter server's worker that
            # dies has its scheduled function repeated: one step.
            at_once = 1 if self._is_served else max(section.steps_per_execution, 2)
            maker = dataclasses.replace(self._maker(section, trains=True), tell=self._tell)
            model = maker.make_compiled(at_once)
            sync = section.sync_every
            averaging = Averaging(model, strategy, sync.steps, sync.outer_momentum) if sync else None
        if self._task.type == CHIEF:
            self._notice(model, strategy.num_replicas_in_sync)
        saver = Saver(model, self._folder, section.keep_checkpoint_max, self._task)
        share = 1 if self._is_served else self._context.distribution.train.worker_count
        meter = Meter.of_environment(self._task, section.global_batch_size / share)
        watch = Watch(
            section,
            saver,
            strategy,
            self._task.stop_file,
            at_once=drivers.stretch(section) if self._is_served else section.steps_per_execution,
            observers=self._observers(model, meter),
            averaging=averaging,
            fixed=self._is_served,
            **({"ends": self._evaluations.ends} if self._evaluations else {}),
        )
        step = saver.restore(bool(self._context.settings.goes_on))
        if tf.train.latest_checkpoint(self._folder) is None and (begins := warm_start_of(self._context)):
            tell(self._context, warm_keras(model, begins.source, begins.exclude, begins.prefix))
            if averaging:
                averaging.begin()
        if not step and isinstance(model, KeptClassifier) and self._task.type != DRY_RUN:
            # The first checkpoint, from which all goes on as after an interruption.
            saver.save(step := model.own.kept_step)
        if self._evaluations:
            self._evaluations.prepare(step)
        watch.begin(step, ended_early=bool(self._evaluations and self._evaluations.stop))
        if not watch.ended:
            reader = self._declared.reader
            if self._is_served:
                reader = dataclasses.replace(reader, start_step=drivers.position(model, step))
            input_fn = meter.wrap(reader.input_fn) if meter else reader.input_fn
            with strategy.scope():
                seeds.resume(section, model, step, self._task.place)
            self._drive(model, strategy, averaging, input_fn, watch)
        if watch.stopped and not is_over(self._task.stop_file):
            raise StoppedByRequestError

    def _tell(self, text: str) -> None:
        if self._task.type == CHIEF:
            self._progress.write(Event.WARMED, text=text)

    def _notice(self, model: tf.keras.Model, replicas: int) -> None:
        """Reports notices about the model."""
        section = self._section
        if isinstance(model, (CompiledClassifier, KeptClassifier)):
            for text in compiled_notices(model.own, section, self._context.settings.declared):
                self._progress.write(Event.NOTICED, text=text)
        elif section.optimizer.scaling != "none":
            self._progress.write(Event.SCALED, text=section.optimizer.describe_scaled(replicas))

    def _observers(self, model: tf.keras.Model, meter: Optional[Meter]) -> list[Observer]:
        section, own = self._section, []
        if self._task.type == CHIEF:
            # That of a kept training is in its graph.
            optimizer = None if isinstance(model, KeptClassifier) else model.optimizer
            curves = Curves(self._folder, section.report_steps, functools.partial(learning_rate_of, optimizer))
            own = [Additions(section.tensorboard, curves, self._declared.reader.input_fn, model), curves]
        profiler = Profiler.of(section, self._folder, self._task, self._progress)
        return [each for each in (meter, profiler, Reporter(self._progress, section.train_steps), *own) if each]

    def _drive(
        self,
        model: tf.keras.Model,
        strategy: tf.distribute.Strategy,
        averaging: Optional[Averaging],
        input_fn: drivers.InputFn,
        watch: Watch,
    ) -> None:
        """Trains until the watch has ended, by the driver of this path and strategy."""
        by_fit = self._context.job.path == KERAS
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            make_dataset = drivers.dataset_fn(input_fn, self._context.distribution.train.worker_count - 1)
            if by_fit:
                drivers.fit_by_workers(model, make_dataset, watch)
            else:
                drivers.loop_by_workers(model, make_dataset, watch, strategy)
            return
        mode = ModeKeys.TRAIN
        batches = strategy.distribute_datasets_from_function(lambda context: input_fn(mode, context))
        (drivers.fit if by_fit else drivers.loop)(model, batches, watch, strategy, averaging)

    def _export(self, checkpoint: str) -> None:
        settings, exports = self._context.settings, self._context.job.exports_dir
        folder = os.path.join(self._folder, "export")
        maker = self._maker(self._section.undivided, trains=False)
        # With a new Transform layer: Keras saves a layer with the inputs of its first call, and in training the layer
        # is called with labels as well.
        settings = dataclasses.replace(settings, label_names=tuple(self._params["label_names"]))
        export_model(maker, checkpoint, self._declare(), settings, folder)
        export.check(folder)
        export.adopt(folder, path_utils.serving_model_dir(exports))
        tf.io.gfile.rmtree(folder)
