"""What a task does: the user's run_fn, or train_and_evaluate on what trainer_fn returns; then the export."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.components.util import udf_utils
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.estimator import asynchronous_saves, evaluation
from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.components.trainer.estimator.hooks import EvaluationProgressHook, TrainingProgressHook
from tfx_estimator.components.trainer.estimator.measuring.measure_hook import measured
from tfx_estimator.components.trainer.estimator.patches import tensorflow_fixes
from tfx_estimator.components.trainer.estimator.task_hooks import (
    FailFastHook,
    NoEvaluationHook,
    StopHook,
    StoppedByRequestError,
)
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PROBE, PS, WORKER, TaskSpec
from tfx_estimator.components.trainer.replica_check import check as replica_check
from tfx_estimator.components.trainer.user_input.shared_batches import share
from tfx_estimator.model_fn.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.errors import UserCodeError

_TF_CONFIG = "TF_CONFIG"
# What is reported by those that wait for others.
_QUIET = {PS: "serving", EVALUATOR: "waiting"}


def run(job: Job, task_spec: TaskSpec, progress: ProgressWriter) -> None:
    """Trains, evaluates, exports: what of it is this task's part.

    Args:
        job: What to train.
        task_spec: Which task this is.
        progress: Where to report.

    Raises:
        UserCodeError: A module file does not keep its contract.
        ExportError: There is no whole model at the end.
        StoppedByRequestError: The supervisor asked to stop, and the checkpoint is written.
    """
    distribution = job.settings.distribution
    train, evaluate = _sections(distribution, task_spec)
    tensorflow_fixes.apply()
    if train.strategy == "parameter_server":
        asynchronous_saves.apply(train.worker_count, asynchronous_saves.cell(task_spec.stop_file))
    exports = export.exports_dir(job.training_dir)
    fn_args = _fn_args(job)
    functions = _functions(job.exec_properties)
    if job.settings.trainer and job.settings.trainer.deterministic:
        tf.config.experimental.enable_op_determinism()
    if "trainer_fn" not in functions:
        if task_spec.type == PROBE:
            return
        _run_fn(functions["run_fn"], fn_args, distribution, task_spec, progress)
        if not task_spec.in_cluster or task_spec.type == CHIEF:
            export.check(fn_args.serving_model_dir)
            export.adopt(fn_args.serving_model_dir, path_utils.serving_model_dir(exports))
            progress.write("exported")
        return
    if task_spec.type == PROBE:
        tf.config.set_visible_devices([], "GPU")
    configure_devices(train, evaluate)
    # Before any TensorFlow op, and while TF_CONFIG is there.
    strategies = make_strategy(train), make_strategy(evaluate)
    progress.write("started")
    # A RunConfig of a trainer_fn that knows nothing of the cluster shall not be made for one.
    tf_config = os.environ.pop(_TF_CONFIG, None)
    make_spec = functools.partial(_call_trainer_fn, functions["trainer_fn"], fn_args)
    if task_spec.type == PROBE:
        progress.write("running")
        replica_check.run(make_spec, distribution, strategies[0], job.training_dir)
        return
    spec = make_spec()
    if tf_config is not None:
        os.environ[_TF_CONFIG] = tf_config
    synchronous = task_spec.in_cluster and distribution.train.strategy == "multi_worker_mirrored"
    spec["estimator"] = distribute(
        spec["estimator"],
        *strategies,
        in_cluster=bool(task_spec.tf_config),
        # Not the strategy's own option: TensorFlow keeps a thread for each collective until its timeout has passed.
        step_timeout=distribution.train.timeout_seconds if synchronous else None,
    )
    spec.update(_shared_inputs(spec, distribution, *strategies))
    _train_and_evaluate(spec, distribution, task_spec, progress)
    if task_spec.evaluates:
        progress.write("exporting")
        _adopt_exports(spec, exports)
        progress.write("exported")


def _run_fn(
    run_fn: Callable,
    fn_args: fn_args_utils.FnArgs,
    distribution: Distribution,
    task_spec: TaskSpec,
    progress: ProgressWriter,
) -> None:
    """TFX's generic contract: the function makes its own strategy; in a cluster, TF_CONFIG tells it of the others.

    Source: https://www.tensorflow.org/tfx/guide/trainer#generic_trainer.
    """
    strategy = distribution.train.strategy
    if strategy != "one_device" and not distribution.train.is_cluster:
        raise UserCodeError(
            f"a run_fn makes its own tf.distribute strategy, so `{strategy}` could not be given to it",
            expected="trainer.distribution with a trainer_fn; or, for a run_fn, one_device or a cluster",
            todo=f"make the strategy `{strategy}` inside the run_fn, and remove it from the distribution",
        )
    if distribution.evaluator or distribution.eval.strategy != "one_device":
        raise UserCodeError(
            "a run_fn evaluates by itself: an evaluator task, or a strategy for it, could not be given to it",
            expected="evaluator: false, and no eval strategy, with a run_fn",
            todo="remove trainer.distribution.evaluator and trainer.distribution.eval",
        )
    if task_spec.in_cluster and task_spec.type != CHIEF:
        # As the guide of TensorFlow has it: all tasks save, and only what the chief saves is kept.
        fn_args.serving_model_dir = os.path.join(fn_args.model_run_dir, f"tmp_worker_{task_spec.name}", "serving")
    progress.write("running")
    run_fn(fn_args)


def _sections(distribution: Distribution, task_spec: TaskSpec) -> tuple[Strategy, Strategy]:
    """The strategies of this task: one that only evaluates, or only trains, has no other."""
    if task_spec.type == PROBE:
        return replica_check.section(distribution), Strategy()
    # The exporter trains no step, and evaluates as declared.
    alone = distribution.train.is_cluster and not task_spec.in_cluster
    train = TrainStrategy() if alone else distribution.train
    return train, distribution.eval if task_spec.evaluates else Strategy()


def _shared_inputs(
    spec: dict[str, Any],
    distribution: Distribution,
    train: Optional[tf.distribute.Strategy],
    evaluate: Optional[tf.distribute.Strategy],
) -> dict[str, Any]:
    """The specs, with input_fns for the strategies."""
    train_spec, eval_spec = spec["train_spec"], spec["eval_spec"]
    if train is not None:
        in_step = distribution.train.strategy != "parameter_server"
        train_spec = train_spec._replace(input_fn=share(train_spec.input_fn, in_step))
    if evaluate is not None:
        eval_spec = eval_spec._replace(input_fn=share(eval_spec.input_fn, training=False))
    return {"train_spec": train_spec, "eval_spec": eval_spec}


def _fn_args(job: Job) -> fn_args_utils.FnArgs:
    """TFX's own, with the folders that outlive one execution."""
    inputs = artifact_utils.parse_artifact_dict(job.inputs)
    outputs = artifact_utils.parse_artifact_dict(job.outputs)
    fn_args = tfx_executor.GenericExecutor()._GetFnArgs(inputs, outputs, job.exec_properties)
    fn_args.model_run_dir = job.training_dir
    fn_args.serving_model_dir = path_utils.serving_model_dir(job.training_dir)
    fn_args.eval_model_dir = path_utils.eval_model_dir(job.training_dir)
    return fn_args


def _functions(exec_properties: dict[str, Any]) -> dict[str, Callable]:
    """The user's trainer_fn or run_fn; a module that has both is an Estimator's, whose training we then distribute."""
    for name in ("trainer_fn", "run_fn"):
        if exec_properties.get(name):
            return {name: udf_utils.get_fn(exec_properties, name)}
    # All the module's names at once: each look-up would install the module file with pip once more.
    names: dict[str, Any] = udf_utils.get_fn(exec_properties, "__dict__")  # type: ignore[assignment]
    found = {name: names[name] for name in ("trainer_fn", "run_fn") if callable(names.get(name))}
    if not found:
        raise UserCodeError(
            f"module file {names.get('__file__')} defines neither trainer_fn nor run_fn",
            expected="`def trainer_fn(fn_args, schema)` or `def run_fn(fn_args)`",
            todo="define one of them",
        )
    return found


def _call_trainer_fn(trainer_fn: Callable, fn_args: fn_args_utils.FnArgs) -> dict[str, Any]:
    """The legacy Estimator contract.

    Source: `tfx.components.trainer.executor.Executor`.
    """
    spec = dict(trainer_fn(fn_args, _schema(fn_args)))
    missing = {"estimator", "train_spec", "eval_spec"} - set(spec)
    if missing:
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
    folder, own = spec["estimator"].model_dir, fn_args.model_run_dir
    if os.path.normpath(folder) != os.path.normpath(own) and not folder.startswith(os.path.join(own, "")):
        raise UserCodeError(
            f"the Estimator that trainer_fn returned keeps its checkpoints in {folder}",
            expected=f"a folder in {own}, where they are found again when training is started again",
            todo="make it with model_dir=fn_args.serving_model_dir, as TFX has it; or in the RunConfig",
        )
    return spec


def _schema(fn_args: fn_args_utils.FnArgs) -> Optional[Any]:
    from tensorflow_metadata.proto.v0 import schema_pb2

    return io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema()) if fn_args.schema_path else None


def _train_and_evaluate(
    spec: dict[str, Any], distribution: Distribution, task_spec: TaskSpec, progress: ProgressWriter
) -> None:
    """Trains to `max_steps`; evaluates and exports the last checkpoint where that is this task's part."""
    spec = measured(spec, task_spec)
    synchronous = distribution.train.strategy == "multi_worker_mirrored" and task_spec.in_cluster
    if synchronous and spec["train_spec"].saving_listeners:
        raise UserCodeError(
            "TensorFlow calls no saving_listeners of a TrainSpec under multi_worker_mirrored",
            expected="a TrainSpec without saving_listeners",
            todo="do in a SessionRunHook what they do, or train with another strategy",
        )
    estimator: tf.estimator.Estimator = spec["estimator"]
    stop = StopHook(task_spec.stop_file, progress, alone=distribution.train.strategy != "parameter_server")
    train_hooks = [*spec["train_spec"].hooks, TrainingProgressHook(progress), stop]
    interval = estimator.config.save_checkpoints_steps
    if task_spec.type == WORKER and task_spec.local and distribution.train.strategy == "parameter_server":
        hook = asynchronous_saves.wait_hook(
            task_spec.stop_file, interval, distribution.train.worker_count, spec["train_spec"].max_steps
        )
        train_hooks += [hook] if hook else []
    if synchronous:
        train_hooks.append(FailFastHook())
    train_spec = spec["train_spec"]._replace(hooks=tuple(train_hooks))
    eval_spec: tf.estimator.EvalSpec = spec["eval_spec"]
    eval_spec = eval_spec._replace(
        hooks=(*eval_spec.hooks, EvaluationProgressHook(progress), NoEvaluationHook(stop)),
        exporters=(*eval_spec.exporters, evaluation.MetricsReporter(progress)),
    )
    if distribution.evaluator:
        eval_spec = eval_spec._replace(
            start_delay_secs=distribution.start_delay_secs, throttle_secs=distribution.throttle_secs
        )
    if task_spec.type in _QUIET:
        progress.write(_QUIET[task_spec.type])
    if task_spec.type == EXPORTER:
        # Whatever steps the cluster did: train_and_evaluate would do those that it thinks are missing.
        evaluation.evaluate_if_needed(estimator, eval_spec)
        return
    while True:
        try:
            tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
            break
        except (ValueError, tf.errors.OpError) as error:
            # The chief keeps a few checkpoints only, and may remove the one that is being evaluated.
            if task_spec.type != EVALUATOR or not evaluation.was_overtaken(estimator, error):
                raise
    if stop.stopped:
        raise StoppedByRequestError
    if task_spec.in_cluster:
        progress.write("trained")
    else:
        evaluation.evaluate_if_needed(estimator, eval_spec)


def _adopt_exports(spec: dict[str, Any], exports: str) -> None:
    """Moves what the exporters wrote to where the supervisor publishes it from."""
    estimator: tf.estimator.Estimator = spec["estimator"]
    saved_model = evaluation.newest_export(estimator, spec["eval_spec"].exporters)
    export.check(saved_model)
    if spec.get("eval_input_receiver_fn"):
        # Imported here, and no more than this of TFMA: all of it takes longer than TensorFlow.
        from tensorflow_model_analysis.eval_saved_model import export as tfma_export

        exported = tfma_export.export_eval_savedmodel(
            estimator=estimator,
            export_dir_base=os.path.join(estimator.model_dir, "export_eval"),
            eval_input_receiver_fn=spec["eval_input_receiver_fn"],
        )
        export.adopt(tf.compat.as_str(exported), path_utils.eval_model_dir(exports))
    # Last: that it is there says that all is.
    export.adopt(saved_model, path_utils.serving_model_dir(exports))
