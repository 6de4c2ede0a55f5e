"""The run_fn path: the user's function trains, evaluates and saves by itself."""

from __future__ import annotations

import os

from tfx.utils import path_utils

from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.components.trainer.task.fn_args import make_fn_args
from tfx_estimator.components.trainer.task.user_code import function_of


class RunFnPath:
    """TFX's generic contract: the function makes its own strategy; in a cluster, TF_CONFIG tells it of the others.

    Source: https://www.tensorflow.org/tfx/guide/trainer#generic_trainer.
    """

    def run(self, context: TaskContext) -> None:
        """See Path."""
        job, task, progress = context.job, context.task, context.progress
        fn_args = make_fn_args(job)
        run_fn = function_of(job.exec_properties, "run_fn")
        leads = not task.in_cluster or task.type == CHIEF
        if not leads:
            # As the guide of TensorFlow has it: all tasks save, and only what the chief saves is kept.
            fn_args.serving_model_dir = os.path.join(fn_args.model_run_dir, f"tmp_worker_{task.name}", "serving")
        progress.write(Event.RUNNING)
        run_fn(fn_args)
        if leads:
            export.check(fn_args.serving_model_dir)
            export.adopt(fn_args.serving_model_dir, path_utils.serving_model_dir(job.exports_dir))
            progress.write(Event.EXPORTED)
