"""TFX's arguments of a trainer_fn or run_fn, with the folders that outlive one execution."""

from __future__ import annotations

from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.types import artifact_utils
from tfx.utils import path_utils

from tfx_estimator.components.trainer.job import Job


def make_fn_args(job: Job) -> fn_args_utils.FnArgs:
    """Returns what TFX's own executor would give to the function, but for the folders."""
    inputs = artifact_utils.parse_artifact_dict(job.inputs)
    outputs = artifact_utils.parse_artifact_dict(job.outputs)
    fn_args = tfx_executor.GenericExecutor()._GetFnArgs(inputs, outputs, job.exec_properties)
    fn_args.model_run_dir = job.training_dir
    fn_args.serving_model_dir = path_utils.serving_model_dir(job.training_dir)
    fn_args.eval_model_dir = path_utils.eval_model_dir(job.training_dir)
    return fn_args
