"""The run_fn path, TFX's generic contract: the function trains, evaluates and saves itself.

It gets the declared strategy as the current one, and in place of a new one without devices. TFX's module files make a
`MirroredStrategy()`, which TensorFlow refuses in a cluster; TensorFlow's guide for several workers makes a
`MultiWorkerMirroredStrategy()`, of which a process should have only one; others call `tf.distribute.get_strategy()`, or
use no strategy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf
from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.trainer import export, seeds
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF
from tfx_estimator.components.trainer.task.runtime import allow_ops
from tfx_estimator.components.trainer.task.user_code import function_of, make_fn_args
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy

_UNTIL = "tf.distribute takes its strategy from outside of the code that trains"


def run(context: TaskContext) -> None:
    """Calls the function under the declared strategy, with the cluster in TF_CONFIG.

    Source: https://www.tensorflow.org/tfx/guide/trainer#generic_trainer.
    """
    job, task, progress = context.job, context.task, context.progress
    if (train := context.distribution.train).asynchronous:
        allow_ops(train.worker_count)
    seeds.apply(context.settings.trainer, task.place)
    configure_devices(train)
    # Before any TensorFlow op. A run_fn cannot use the strategy of TensorFlow 1's parameter servers.
    strategy = None if train.asynchronous else make_strategy(train)
    fn_args = make_fn_args(job)
    leads = not task.in_cluster or task.type == CHIEF
    if not leads:
        # As in TensorFlow's guide: all tasks save, and only the chief's model is kept.
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


@contextlib.contextmanager
def declared(strategy: Optional[tf.distribute.Strategy], notice: Callable[[str], None]) -> Iterator[None]:
    """Runs the code inside under a strategy. It patches TensorFlow's classes for the rest of the process.

    `MirroredStrategy()` and `MultiWorkerMirroredStrategy(…)` then return this strategy. If the code makes a strategy
    with devices, or of another class, the declared one is no longer current, since TensorFlow refuses to mix two.

    Args:
        strategy: The declared one; None changes nothing.
        notice: Called with a warning if the code makes its own strategy.
    """
    if strategy is None:
        yield
        return
    scope = contextlib.ExitStack()
    scope.enter_context(strategy.scope())

    def give_way(made: Any) -> None:
        # TensorFlow makes its default strategies itself.
        if type(made).__name__.startswith("_Default") or tf.distribute.get_strategy() is not strategy:
            return
        scope.close()
        notice(
            f"the run_fn makes its own strategy, {type(made).__name__}, and trains with it: the declared one is not "
            "used. tf.distribute.get_strategy(), or MirroredStrategy() without devices, would be the declared one"
        )

    for patch in _patches(strategy, give_way):
        patch.apply()
    with scope:
        yield


def _patches(declared: tf.distribute.Strategy, give_way: Callable[[Any], None]) -> Iterator[Patch]:
    def make(original: Any, cls: type, *args: Any, **kwargs: Any) -> Any:
        return original(cls) if _devices(cls, args, kwargs) else declared

    def set_up(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        # Python also calls it for the object that `make` returned.
        if self is not declared:
            original(self, *args, **kwargs)

    def note(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        give_way(self)

    reason = "code that makes its own strategy trains with another one than the declared one"
    distribute = "tensorflow.python.distribute"
    for name in ("mirrored_strategy:MirroredStrategy", "collective_all_reduce_strategy:CollectiveAllReduceStrategy"):
        yield Patch(f"{distribute}.{name}.__new__", make, reason, _UNTIL)
        yield Patch(f"{distribute}.{name}.__init__", set_up, reason, _UNTIL)
    yield Patch(
        f"{distribute}.input_ops:auto_shard_dataset",
        _by_examples,
        reason="TensorFlow gives each worker its own files, and fails if there are fewer files than workers, as from "
        "TFX's Transform; with enough files, a step's examples differ from those on one device",
        until=_UNTIL,
    )
    reason = "TensorFlow refuses to enter the scope of a strategy inside of that of another one"
    yield Patch(f"{distribute}.distribute_lib:StrategyBase.__init__", note, reason, _UNTIL)


def _by_examples(original: Any, dataset: Any, num_shards: int, index: int, *args: Any, **kwargs: Any) -> Any:
    """Shards each batch among workers, unless the dataset sets another policy."""
    policy = tf.data.experimental.AutoShardPolicy
    if isinstance(dataset, tf.data.Dataset) and num_shards > 1:
        options = tf.data.Options()
        if dataset.options().experimental_distribute.auto_shard_policy == policy.AUTO:
            options.experimental_distribute.auto_shard_policy = policy.DATA
            dataset = dataset.with_options(options)
    return original(dataset, num_shards, index, *args, **kwargs)


def _devices(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the devices argument of a MirroredStrategy; a MultiWorkerMirroredStrategy takes none."""
    return issubclass(cls, tf.distribute.MirroredStrategy) and (args[0] if args else kwargs.get("devices"))


def _adopt_exports(fn_args: fn_args_utils.FnArgs, exports: str) -> None:
    """Copies the function's models to the job's exports.

    An Estimator saves its model in `export/NAME/TIME` below `serving_model_dir`, and its EvalSavedModel in
    `eval_model_dir/TIME`: after a restart the newest counts. Other models are in these folders themselves.

    Source: `tfx.utils.path_utils`, which every other component of TFX uses to read a model.
    """
    exporters = export.paths_in(os.path.join(fn_args.serving_model_dir, "export"))
    serving = export.newest_version(*exporters) or fn_args.serving_model_dir
    export.check(serving)
    evaluated = export.newest_version(fn_args.eval_model_dir) or fn_args.eval_model_dir
    if fileio.exists(os.path.join(evaluated, "saved_model.pb")):
        export.adopt(evaluated, path_utils.eval_model_dir(exports))
    # Last, as a mark that the exports are complete.
    export.adopt(serving, path_utils.serving_model_dir(exports))


def _run_local(original: Any, executor: Any) -> tuple[Any, Any]:
    """Evaluates and exports the last checkpoint if no step was left to train."""
    metrics, exports = original(executor)
    if metrics is None and executor._estimator.latest_checkpoint():
        evaluator = executor._Evaluator(executor._estimator, executor._eval_spec, executor._train_spec.max_steps)
        result, exports = evaluator.evaluate_and_export()
        metrics = result.metrics
    return metrics, exports


_EXPORT_AFTER_ALL = Patch(
    "tensorflow_estimator.python.estimator.training:_TrainingExecutor.run_local",
    _run_local,
    reason="train_and_evaluate exports nothing if no step is left to train. In TFX a retry starts in an empty folder; "
    "here a run_fn that was killed in its last evaluation finds its checkpoints, and would export no model",
    until="a run_fn's training folder is empty on a retry",
)
