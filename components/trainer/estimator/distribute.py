"""Gives an Estimator the declared strategies, whoever built it."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.estimator.patches import replica_fixes
from tfx_estimator.components.trainer.user_input.shared_batches import SEED
from tfx_estimator.pipeline.base.errors import UserCodeError

_NEVER = 2**31 - 1
# What a RunConfig is built from, beside what TF_CONFIG and this project decide.
_KEPT = (
    "model_dir",
    "tf_random_seed",
    "save_summary_steps",
    "session_config",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
    "device_fn",
    "protocol",
    "session_creation_timeout_secs",
    "checkpoint_save_graph_def",
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
        train: `RunConfig.train_distribute`.
        evaluation: `RunConfig.eval_distribute`.
        step_timeout: Longest wait for the others in a step, in seconds; None waits for ever.

    Returns:
        The Estimator itself where nothing is declared; else another one of the same model_fn, params and folder.

    Raises:
        UserCodeError: The user's own RunConfig names a strategy as well, or saves no checkpoints in a cluster.
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
        # All workers must shuffle alike.
        changes["tf_random_seed"] = SEED
    if step_timeout is not None:
        session_config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        if config.session_config is not None:
            session_config.CopyFrom(config.session_config)
        session_config.operation_timeout_in_ms = int(1000 * step_timeout)
        changes["session_config"] = session_config
    return rebuild(estimator, **changes)


def rebuild(estimator: tf.estimator.Estimator, **changes: Any) -> tf.estimator.Estimator:
    """Makes another Estimator of the same model_fn, params and warm start.

    Args:
        **changes: Arguments of `tf.estimator.RunConfig` that replace those of the Estimator's own.

    Returns:
        The other one; it may be trained in another folder.
    """
    replica_fixes.apply()
    config = estimator.config
    kept: dict[str, Any] = {name: getattr(config, name) for name in _KEPT}
    # A RunConfig takes one of the two, even where the other is None.
    saves = "save_checkpoints_secs" if config.save_checkpoints_steps is None else "save_checkpoints_steps"
    if "save_checkpoints_steps" not in changes:
        kept[saves] = getattr(config, saves)
    # Else a worker of parameter servers sleeps five seconds and more before it trains.
    rebuilt = tf.estimator.RunConfig(**{**kept, **changes}, experimental_max_worker_delay_secs=0)
    params = estimator.params
    return tf.estimator.Estimator(
        _model_fn(estimator, with_params=bool(params)),
        config=rebuilt,
        params=params or None,
        warm_start_from=estimator._warm_start_settings,
    )


def _model_fn(estimator: tf.estimator.Estimator, with_params: bool) -> Any:
    """The bound model_fn; with `params` among its arguments where an input_fn may ask for them."""
    inner = estimator.model_fn

    def model_fn(features: Any, labels: Any, mode: str, config: tf.estimator.RunConfig) -> tf.estimator.EstimatorSpec:
        return inner(features, labels, mode, config)

    def model_fn_params(
        features: Any, labels: Any, mode: str, params: Any, config: tf.estimator.RunConfig
    ) -> tf.estimator.EstimatorSpec:
        return inner(features, labels, mode, config)

    return model_fn_params if with_params else model_fn
