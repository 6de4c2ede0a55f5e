"""The run_fn path: the user's function trains, evaluates and saves by itself."""

from __future__ import annotations

import os

from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio
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
            progress.write(Event.EXPORTING)
            _adopt_exports(fn_args, job.exports_dir)
            progress.write(Event.EXPORTED)


def _adopt_exports(fn_args: fn_args_utils.FnArgs, exports: str) -> None:
    """Copies what the function saved to where the supervisor publishes it from.

    A Keras model lies in `serving_model_dir` itself, an Estimator's in `export/NAME/TIME` below it, and its
    EvalSavedModel in `eval_model_dir/TIME`; after a restart the newest counts.

    Source: `tfx.utils.path_utils`, which every other component of TFX reads a model by.
    """
    serving = _saved_model(fn_args.serving_model_dir, os.path.join("export", "*"))
    export.check(serving)
    evaluated = _saved_model(fn_args.eval_model_dir, "")
    if _is_saved_model(evaluated):
        export.adopt(evaluated, path_utils.eval_model_dir(exports))
    # Last: that it is there says that all is.
    export.adopt(serving, path_utils.serving_model_dir(exports))


def _saved_model(folder: str, exporters: str) -> str:
    """The SavedModel in a folder, or the newest that an Estimator's exporters left below it."""
    if _is_saved_model(folder):
        return folder
    found = [export.newest_version(each) for each in fileio.glob(os.path.join(folder, exporters))]
    return max(filter(None, found), key=lambda path: int(os.path.basename(path)), default=folder)


def _is_saved_model(folder: str) -> bool:
    return fileio.exists(os.path.join(folder, "saved_model.pb"))
