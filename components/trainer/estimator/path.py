"""The Estimator path: train_and_evaluate on what the user's trainer_fn returns; then the export."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.trainer import fn_args_utils
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer import export, seeds
from tfx_estimator.components.trainer.cluster.tf_config import VARIABLE as TF_CONFIG
from tfx_estimator.components.trainer.estimator import evaluation, keras_layers, patches
from tfx_estimator.components.trainer.estimator.distribute import distribute, warm_start
from tfx_estimator.components.trainer.estimator.training import train_and_evaluate
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN, REPLICA_CHECK, TaskSpec
from tfx_estimator.components.trainer.replica_check import check as replica_check
from tfx_estimator.components.trainer.settings import BUILT_IN_TRAINER_FN, SETTINGS_KEY
from tfx_estimator.components.trainer.task.user_code import function_of, make_fn_args, tell, warm_start_of
from tfx_estimator.components.trainer.user_input.input_check import check_evaluation_ends
from tfx_estimator.components.trainer.user_input.shared_batches import share
from tfx_estimator.model_fn.bridge.tpu import without_tpu
from tfx_estimator.model_fn.parallel.division import whole_network
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack import stacks, tfma_export
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy


def run(context: TaskContext) -> None:
    """Trains the Estimator that a trainer_fn returns, under the declared strategies."""
    distribution, task, progress = context.distribution, context.task, context.progress
    train, evaluate = _sections(distribution, task)
    patches.apply([*patches.PATCHES, *(patches.DECLARED_PATCHES if context.settings.built_in else ())])
    seeds.apply(context.settings.trainer, task.place)
    if task.type == REPLICA_CHECK:
        tf.config.set_visible_devices([], "GPU")
    section = context.settings.trainer
    configure_devices(train, evaluate, cpus=section.logical_cpus if section else 1)
    # Before any TensorFlow op, and while TF_CONFIG is there.
    strategies = make_strategy(train), make_strategy(evaluate)
    progress.write(Event.STARTED, pid=os.getpid())
    # Without TF_CONFIG: the RunConfig of a user's trainer_fn shall not be made for a cluster.
    tf_config = os.environ.pop(TF_CONFIG, None)
    make_spec = _spec_maker(context)
    if task.type == REPLICA_CHECK:
        progress.write(Event.RUNNING)
        replica_check.run(make_spec, distribution, strategies[0], context.job.training_dir)
        return
    spec = make_spec()
    if task.evaluates:
        check_evaluation_ends(spec)
    if context.tried_for:
        replica_check.check_inputs(spec, context.tried_for)
    if tf_config is not None:
        os.environ[TF_CONFIG] = tf_config
    synchronous = task.in_cluster and distribution.train.is_collective
    spec["estimator"] = distribute(
        spec["estimator"],
        *strategies,
        in_cluster=bool(task.tf_config),
        # Not the strategy's own option: with that TensorFlow keeps a thread per collective until the timeout.
        step_timeout=distribution.train.timeout_seconds if synchronous else None,
    )
    if patterns := context.settings.section.freeze:
        keras_layers.freeze(spec["estimator"], patterns, functools.partial(_notice, context))
    # A training that resumes no longer needs the source of its warm start.
    if spec["estimator"].latest_checkpoint() is None and (declared := warm_start_of(context)):
        warm_start(spec["estimator"], declared, functools.partial(tell, context))
    for name, strategy, how in (
        ("train_spec", strategies[0], {"in_step": not distribution.train.asynchronous}),
        ("eval_spec", strategies[1], {"training": False}),
    ):
        if strategy is not None:
            shared = share(spec[name].input_fn, input_batch=distribution.input_batch, **how)
            spec[name] = spec[name]._replace(input_fn=shared)
    if task.type == DRY_RUN:
        spec.update(train_spec=spec["train_spec"]._replace(max_steps=1), eval_spec=spec["eval_spec"]._replace(steps=1))
    if not context.job.exports:
        spec["eval_spec"] = spec["eval_spec"]._replace(exporters=())
    checkpoint = train_and_evaluate(spec, context)
    if checkpoint and not context.job.exports:
        write_whole(context.job.evaluated_file, "")
    elif checkpoint:
        progress.write(Event.EXPORTING)
        if spec.get("eval_input_receiver_fn") and not stacks.current().has_eval_saved_model:
            spec.pop("eval_input_receiver_fn")
            progress.write(Event.NOTICED, text=tfma_export.NONE_WRITTEN)
        _adopt_exports(spec, context.job.exports_dir, checkpoint)
        progress.write(Event.EXPORTED)


def _spec_maker(context: TaskContext) -> Callable[[], dict[str, Any]]:
    """Returns a function that calls the user's trainer_fn."""
    fn_args = make_fn_args(context.job)
    if context.job.exec_properties.get("trainer_fn") == BUILT_IN_TRAINER_FN:
        fn_args.custom_config = {**(fn_args.custom_config or {}), SETTINGS_KEY: context.job.settings}
    section = context.settings.trainer
    # A module may draw random numbers when it is imported.
    seeds.begin(section)
    trainer_fn = function_of(context.job.exec_properties, "trainer_fn")

    def make_spec() -> dict[str, Any]:
        seeds.begin(section)
        return _call_trainer_fn(trainer_fn, fn_args)

    return make_spec


def _sections(distribution: Distribution, task: TaskSpec) -> tuple[Strategy, Strategy]:
    """Returns this task's strategies of training and evaluation; the default one for what the task does not do."""
    if task.type == REPLICA_CHECK:
        return replica_check.section(distribution), Strategy()
    # The exporter does not train, and evaluates under the declared strategy.
    alone = distribution.train.is_cluster and not task.in_cluster
    train = TrainStrategy() if alone else distribution.train
    return train, distribution.eval if task.evaluates else Strategy()


def _call_trainer_fn(trainer_fn: Callable, fn_args: fn_args_utils.FnArgs) -> dict[str, Any]:
    """Calls a trainer_fn as `tfx.components.trainer.executor.Executor` does, and checks what it returns."""
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema()) if fn_args.schema_path else None
    spec = dict(trainer_fn(fn_args, schema))
    if missing := {"estimator", "train_spec", "eval_spec"} - set(spec):
        raise UserCodeError(
            f"trainer_fn returned no {', '.join(sorted(missing))}",
            expected="a dict with estimator, train_spec, eval_spec and, for an EvalSavedModel, eval_input_receiver_fn",
            todo="see https://www.tensorflow.org/tfx/guide/trainer",
        )
    if not spec["eval_spec"].exporters:
        raise UserCodeError(
            "the EvalSpec that trainer_fn returned has no exporter, so no model would be exported",
            expected="EvalSpec(..., exporters=[tf.estimator.FinalExporter(name, serving_input_receiver_fn)])",
            todo="add one",
        )
    spec["estimator"] = without_tpu(spec["estimator"])
    folder, own = spec["estimator"].model_dir, fn_args.model_run_dir
    if os.path.normpath(folder) != os.path.normpath(own) and not folder.startswith(os.path.join(own, "")):
        raise UserCodeError(
            f"the Estimator that trainer_fn returned keeps its checkpoints in {folder}",
            expected=f"a folder in {own}, where a restarted training finds them",
            todo="set model_dir=fn_args.serving_model_dir, as in TFX's examples, in the Estimator or its RunConfig",
        )
    return spec


def _notice(context: TaskContext, text: str) -> None:
    if context.task.type == CHIEF:
        context.progress.write(Event.WARMED, text=text)


def _adopt_exports(spec: dict[str, Any], exports: str, checkpoint: str) -> None:
    """Moves the exports to the folder that the supervisor publishes from."""
    estimator: tf.estimator.Estimator = spec["estimator"]
    saved_model = evaluation.newest_export(estimator, spec["eval_spec"].exporters)
    export.check(saved_model)
    if spec.get("eval_input_receiver_fn"):
        # Imported here, and only this module: all of TFMA takes longer to import than TensorFlow.
        from tensorflow_model_analysis.eval_saved_model import export as tfma_export

        with whole_network():
            exported = tfma_export.export_eval_savedmodel(
                estimator=estimator,
                export_dir_base=os.path.join(estimator.model_dir, "export_eval"),
                eval_input_receiver_fn=spec["eval_input_receiver_fn"],
                checkpoint_path=checkpoint,
            )
        export.adopt(tf.compat.as_str(exported), path_utils.eval_model_dir(exports))
    # Last: its presence means that the exports are complete.
    export.adopt(saved_model, path_utils.serving_model_dir(exports))
