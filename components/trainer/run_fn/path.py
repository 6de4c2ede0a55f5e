"""The run_fn path: the user's function trains, evaluates and saves by itself."""

from __future__ import annotations

import os
from typing import Any

from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.trainer import export, seeds
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF
from tfx_estimator.components.trainer.run_fn.declared_strategy import declared
from tfx_estimator.components.trainer.task.runtime import allow_ops
from tfx_estimator.components.trainer.task.user_code import function_of, make_fn_args
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy


class RunFnPath:
    """TFX's generic contract: the function finds the declared strategy, or makes one of its own.

    In a cluster TF_CONFIG tells it of the others.

    Source: https://www.tensorflow.org/tfx/guide/trainer#generic_trainer.
    """

    def run(self, context: TaskContext) -> None:
        """See Path."""
        job, task, progress = context.job, context.task, context.progress
        if (train := context.distribution.train).asynchronous:
            allow_ops(train.worker_count)
        seeds.apply(context.settings.trainer, task.place)
        configure_devices(train)
        # Before any TensorFlow op. The strategy of TensorFlow 1's parameter servers is no use to a run_fn.
        strategy = None if train.asynchronous else make_strategy(train)
        fn_args = make_fn_args(job)
        leads = not task.in_cluster or task.type == CHIEF
        if not leads:
            # As TensorFlow's guide has it: all tasks save, and only what the chief saves is kept.
            own = os.path.join(job.training_dir, f"tmp_worker_{task.name}")
            fn_args.serving_model_dir = path_utils.serving_model_dir(own)
            fn_args.eval_model_dir = path_utils.eval_model_dir(own)
        seeds.begin(context.settings.trainer)
        run_fn = function_of(job.exec_properties, "run_fn")
        progress.write(Event.RUNNING)
        folders = (fn_args.serving_model_dir, job.training_dir)
        if any(fileio.exists(os.path.join(folder, "checkpoint")) for folder in folders):
            _EXPORT_AFTER_ALL.apply()
        with declared(strategy, lambda text: progress.write(Event.NOTICED, text=text)):
            run_fn(fn_args)
        if leads:
            progress.write(Event.EXPORTING)
            _adopt_exports(fn_args, job.exports_dir)
            progress.write(Event.EXPORTED)


def _adopt_exports(fn_args: fn_args_utils.FnArgs, exports: str) -> None:
    """Copies what the function saved to where the supervisor publishes it from.

    An Estimator's model lies in `export/NAME/TIME` below `serving_model_dir`, its EvalSavedModel in
    `eval_model_dir/TIME`: after a restart the newest counts. Everything else lies in these folders themselves.

    Source: `tfx.utils.path_utils`, which every other component of TFX reads a model by.
    """
    exporters = export.paths_in(os.path.join(fn_args.serving_model_dir, "export"))
    serving = export.newest_version(*exporters) or fn_args.serving_model_dir
    export.check(serving)
    evaluated = export.newest_version(fn_args.eval_model_dir) or fn_args.eval_model_dir
    if fileio.exists(os.path.join(evaluated, "saved_model.pb")):
        export.adopt(evaluated, path_utils.eval_model_dir(exports))
    # Last: that it is there says that all is.
    export.adopt(serving, path_utils.serving_model_dir(exports))


def _run_local(original: Any, executor: Any) -> tuple[Any, Any]:
    """Evaluates and exports the last checkpoint if there was nothing left to train."""
    metrics, exports = original(executor)
    if metrics is None and executor._estimator.latest_checkpoint():
        evaluator = executor._Evaluator(executor._estimator, executor._eval_spec, executor._train_spec.max_steps)
        result, exports = evaluator.evaluate_and_export()
        metrics = result.metrics
    return metrics, exports


_EXPORT_AFTER_ALL = Patch(
    "tensorflow_estimator.python.estimator.training:_TrainingExecutor.run_local",
    _run_local,
    reason="a train_and_evaluate that finds nothing left to train exports nothing. In TFX a retry starts in an empty "
    "folder; here a run_fn that was killed in its last evaluation finds its checkpoints, and would export no model",
    until="the training folder is an empty one for a run_fn",
)
