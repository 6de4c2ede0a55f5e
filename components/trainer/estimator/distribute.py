"""Applies the declared strategies and warm start to an Estimator that a trainer_fn has built."""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.components.trainer.estimator.keras_layers import note_models, noted_models
from tfx_estimator.components.trainer.user_input.shared_batches import SEED
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.bridge.tpu import WithoutTpu
from tfx_estimator.model_fn.user_models.warm_start import Matched, match, of_graph, read_weights, shape_of
from tfx_estimator.model_fn.user_models.weights_file import write_checkpoint
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.warm_start import WarmStart

bring_back_estimator()

_NEVER = 2**31 - 1
# Fields of a RunConfig that TF_CONFIG, this project or other fields determine.
_DERIVED = (
    *("train_distribute", "eval_distribute", "experimental_distribute", "experimental_max_worker_delay_secs"),
    *("save_checkpoints_steps", "save_checkpoints_secs"),
)


def distribute(
    estimator: tf.estimator.Estimator,
    train: Optional[tf.distribute.Strategy],
    evaluation: Optional[tf.distribute.Strategy],
    in_cluster: bool,
    step_timeout: Optional[float] = None,
) -> tf.estimator.Estimator:
    """Rebuilds an Estimator around a RunConfig with the strategies.

    Args:
        step_timeout: Longest wait for the other tasks in a step, in seconds; None is no limit.

    Returns:
        The Estimator itself if nothing is declared; else a new one with the same model_fn, params and folder.
    """
    config = estimator.config
    if train is None and evaluation is None and not in_cluster:
        return estimator
    if config.train_distribute or config.eval_distribute:
        raise UserCodeError(
            "both the declaration and the RunConfig of trainer_fn name a tf.distribute strategy",
            expected="the strategy in one place",
            todo="remove train_distribute and eval_distribute from the RunConfig, or trainer.distribution",
        )
    changes: dict[str, Any] = {"train_distribute": train, "eval_distribute": evaluation}
    if in_cluster and config.save_checkpoints_steps is None and config.save_checkpoints_secs is None:
        raise UserCodeError(
            "the RunConfig of trainer_fn saves no checkpoints, so a cluster's work could be neither kept nor exported",
            expected="save_checkpoints_steps or save_checkpoints_secs in the RunConfig",
            todo="set one of them",
        )
    if in_cluster and not config.save_summary_steps:
        # TensorFlow's multi-worker session saves no checkpoints where it writes no summaries.
        changes["save_summary_steps"] = _NEVER
    if in_cluster and config.tf_random_seed is None:
        # All workers must shuffle in the same order.
        changes["tf_random_seed"] = SEED
    if step_timeout is not None:
        session_config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        if config.session_config is not None:
            session_config.CopyFrom(config.session_config)
        session_config.operation_timeout_in_ms = int(1000 * step_timeout)
        changes["session_config"] = session_config
    return rebuild(estimator, **changes)


def rebuild(estimator: tf.estimator.Estimator, **changes: Any) -> tf.estimator.Estimator:
    """Makes an Estimator with the same model_fn, params and warm start, and these changes to its RunConfig."""
    patches.apply(patches.REPLICA_PATCHES)
    config = estimator.config
    names = inspect.signature(tf.estimator.RunConfig).parameters
    kept: dict[str, Any] = {name: getattr(config, name) for name in names if name not in _DERIVED}
    # A RunConfig takes only one of the two, even if the other is None.
    saves = "save_checkpoints_secs" if config.save_checkpoints_steps is None else "save_checkpoints_steps"
    if "save_checkpoints_steps" not in changes:
        kept[saves] = getattr(config, saves)
    # By default a worker of parameter_server sleeps five seconds and more before it trains.
    rebuilt = tf.estimator.RunConfig(**{**kept, **changes}, experimental_max_worker_delay_secs=0)
    # Of a TPUEstimator's, which the model_fn may read.
    if hasattr(config, "tpu_config"):
        rebuilt.tpu_config = config.tpu_config
    if isinstance(estimator, WithoutTpu):
        return estimator.rebuilt(rebuilt)
    # The model_fn is already bound to its params; an input_fn may take them as well.
    made = tf.estimator.Estimator(estimator.model_fn, config=rebuilt, warm_start_from=estimator._warm_start_settings)
    made._params = estimator.params
    return made


class _Deferred(tf.estimator.WarmStartSettings):
    """Warm-start settings computed when TensorFlow unpacks them, in the graph of training, if no checkpoint exists."""

    section: WarmStart
    report: Callable[[Matched], None]
    own: Any
    folder: str

    def __iter__(self) -> Iterator[Any]:
        if self.own is not None:
            # The Estimator of a user's trainer_fn may have a warm start of its own.
            tf.compat.v1.train.warm_start(*self.own)
        collections = tf.compat.v1.global_variables(), tf.compat.v1.trainable_variables()
        variables = of_graph(*collections)
        shapes = {name: shape_of(parts) for name, parts in variables.items()}
        source, section = self.ckpt_to_initialize_from, self.section
        matched = match(source, shapes, section.exclude, part=section.prefix, models=noted_models())
        self.report(matched)
        if section.weights:
            # In the training's folder, which parameter servers read as well.
            folder = os.path.join(self.folder, f"weights-{uuid.uuid4().hex}")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            source, reader = os.path.join(folder, "weights"), read_weights(source)
            write_checkpoint(source, {key: reader.get_tensor(key) for key in matched.keys.values()})
        wanted = [_inner(part) for name in matched.keys for part in variables[name]]
        return iter((source, wanted, None, matched.keys))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Deferred:
        """Returns itself: in a cluster TensorFlow copies the Estimator; copying a tuple would unpack it too early."""
        return self


def _inner(variable: Any) -> Any:
    """Unwraps a variable of `central_storage`: TensorFlow ignores the wrapper's initial value."""
    return getattr(variable, "_v", variable)


def warm_start(estimator: tf.estimator.Estimator, section: WarmStart, report: Callable[[Matched], None]) -> None:
    """Makes an Estimator start from the declared weights, which override its own warm start.

    Args:
        report: Called with the matched variables.
    """
    settings = _Deferred(section.source, vars_to_warm_start=".*")
    settings.section, settings.report, settings.own = section, report, estimator._warm_start_settings
    settings.folder = estimator.model_dir
    if section.weights:
        note_models()
    estimator._warm_start_settings = settings
