"""What a task does: the user's run_fn, or train_and_evaluate on what trainer_fn returns; then the export."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from components.trainer import export, tensorflow_fixes
from components.trainer.hooks import EvaluationProgressHook, TrainingProgressHook
from components.trainer.job import Job
from components.trainer.progress import ProgressWriter
from model_fn.strategies import configure_devices
from pipeline.errors import UserCodeError


def run(job: Job, progress: ProgressWriter) -> None:
    """Trains and exports.

    Args:
        job: What to train.
        progress: Where to report.

    Raises:
        UserCodeError: A module file does not keep its contract.
        ExportError: There is no whole model at the end.
    """
    if section := job.settings.trainer:
        configure_devices(section.distribution.train, section.distribution.eval)
    tensorflow_fixes.apply()
    fn_args = _fn_args(job)
    functions = _functions(job.exec_properties)
    progress.write("started")
    exports = export.exports_dir(job.training_dir)
    if "trainer_fn" in functions:
        _run_trainer_fn(functions["trainer_fn"], fn_args, exports, progress)
    else:
        progress.write("running")
        functions["run_fn"](fn_args)
        export.check(fn_args.serving_model_dir)
        export.adopt(fn_args.serving_model_dir, path_utils.serving_model_dir(exports))
    progress.write("exported")


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


def _run_trainer_fn(
    trainer_fn: Callable, fn_args: fn_args_utils.FnArgs, exports: str, progress: ProgressWriter
) -> None:
    """The legacy Estimator contract.

    Source: `tfx.components.trainer.executor.Executor`.
    """
    spec = trainer_fn(fn_args, _schema(fn_args))
    missing = {"estimator", "train_spec", "eval_spec"} - set(spec)
    if missing:
        raise UserCodeError(
            f"trainer_fn returned no {', '.join(sorted(missing))}",
            expected="a dict with estimator, train_spec, eval_spec and, for an EvalSavedModel, eval_input_receiver_fn",
            todo="see https://www.tensorflow.org/tfx/guide/trainer",
        )
    estimator: tf.estimator.Estimator = spec["estimator"]
    saved_model = _train_and_evaluate(estimator, spec["train_spec"], spec["eval_spec"], progress)
    export.check(saved_model)
    export.adopt(saved_model, path_utils.serving_model_dir(exports))
    if spec.get("eval_input_receiver_fn"):
        # Imported here: most seconds of this process's start would else go to TFMA.
        import tensorflow_model_analysis as tfma

        exported = tfma.export.export_eval_savedmodel(
            estimator=estimator,
            export_dir_base=os.path.join(estimator.model_dir, "export_eval"),
            eval_input_receiver_fn=spec["eval_input_receiver_fn"],
        )
        export.adopt(tf.compat.as_str(exported), path_utils.eval_model_dir(exports))


def _schema(fn_args: fn_args_utils.FnArgs) -> Optional[Any]:
    from tensorflow_metadata.proto.v0 import schema_pb2

    return io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema()) if fn_args.schema_path else None


def _train_and_evaluate(
    estimator: tf.estimator.Estimator,
    train_spec: tf.estimator.TrainSpec,
    eval_spec: tf.estimator.EvalSpec,
    progress: ProgressWriter,
) -> str:
    """Trains to `max_steps`, evaluates the last checkpoint, and exports it.

    Returns:
        Folder of the exported SavedModel.
    """
    if not eval_spec.exporters:
        raise UserCodeError(
            "the EvalSpec that trainer_fn returned has no exporter, so no model would be exported",
            expected="EvalSpec(..., exporters=[tf.estimator.FinalExporter(name, serving_input_receiver_fn)])",
            todo="add one",
        )
    train_spec = train_spec._replace(hooks=(*train_spec.hooks, TrainingProgressHook(progress)))
    eval_spec = eval_spec._replace(hooks=(*eval_spec.hooks, EvaluationProgressHook(progress)))
    metrics, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec) or (None, None)
    if not metrics:
        # Training had ended in an earlier run, which then died: TensorFlow neither evaluates nor exports again.
        metrics = estimator.evaluate(eval_spec.input_fn, eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name)
        for exporter in eval_spec.exporters:
            _export(estimator, exporter, metrics)
    # A metric may be a vector, such as precision_at_thresholds: TensorBoard shows those.
    scalars = {name: value for name, value in metrics.items() if np.ndim(value) == 0 and name != "global_step"}
    values = {name: float(value) for name, value in scalars.items()}
    progress.write("evaluated", step=int(metrics["global_step"]), metrics=values)
    return _exported(estimator, eval_spec.exporters)


def _exported(estimator: tf.estimator.Estimator, exporters: Sequence[tf.estimator.Exporter]) -> str:
    """The newest export of the first exporter that has one: a BestExporter's need not come from the last evaluation."""
    for exporter in exporters:
        folder = os.path.join(estimator.model_dir, "export", exporter.name)
        names = [name.rstrip("/") for name in fileio.listdir(folder)] if fileio.exists(folder) else []
        if versions := [name for name in names if name.isdigit()]:
            return os.path.join(folder, max(versions, key=int))
    return os.path.join(estimator.model_dir, "export")


def _export(estimator: tf.estimator.Estimator, exporter: tf.estimator.Exporter, metrics: dict[str, Any]) -> None:
    exporter.export(
        estimator=estimator,
        export_path=os.path.join(estimator.model_dir, "export", exporter.name),
        checkpoint_path=estimator.latest_checkpoint(),
        eval_result=metrics,
        is_the_final_export=True,
    )
