"""Gives an Estimator the declared strategies, and weights to begin with, whoever built it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.components.trainer.user_input.shared_batches import SEED
from tfx_estimator.model_fn.user_models.warm_start import Matched, match, of_graph, shape_of
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator
from tfx_estimator.pipeline.config.warm_start import WarmStart

bring_back_estimator()

_NEVER = 2**31 - 1
# Of a RunConfig, what TF_CONFIG and this project decide, or its other settings.
_DECIDED = (
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
        step_timeout: Longest wait for the others in a step, in seconds; None waits for ever.

    Returns:
        The Estimator itself where nothing is declared; else another one of the same model_fn, params and folder.
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
    """Makes another Estimator of the same model_fn, params and warm start, with these changes of its RunConfig."""
    patches.apply(patches.REPLICA_PATCHES)
    config = estimator.config
    names = inspect.signature(tf.estimator.RunConfig).parameters
    kept: dict[str, Any] = {name: getattr(config, name) for name in names if name not in _DECIDED}
    # A RunConfig takes one of the two, even where the other is None.
    saves = "save_checkpoints_secs" if config.save_checkpoints_steps is None else "save_checkpoints_steps"
    if "save_checkpoints_steps" not in changes:
        kept[saves] = getattr(config, saves)
    # Else a worker of parameter servers sleeps five seconds and more before it trains.
    rebuilt = tf.estimator.RunConfig(**{**kept, **changes}, experimental_max_worker_delay_secs=0)
    # The model_fn has its params; an input_fn may ask for them as well.
    made = tf.estimator.Estimator(estimator.model_fn, config=rebuilt, warm_start_from=estimator._warm_start_settings)
    made._params = estimator.params
    return made


class _Deferred(tf.estimator.WarmStartSettings):
    """Settings that are known once the graph of training is there, in which TensorFlow unpacks them.

    It does where there is no checkpoint yet, and has the variables' initial values be these.
    """

    section: WarmStart
    tell: Callable[[Matched], None]
    own: Any

    def __iter__(self) -> Iterator[Any]:
        if self.own is not None:
            # That of a trainer_fn of the user's may come with weights of its own.
            tf.compat.v1.train.warm_start(*self.own)
        collections = tf.compat.v1.global_variables(), tf.compat.v1.trainable_variables()
        variables = of_graph(*collections)
        shapes = {name: shape_of(parts) for name, parts in variables.items()}
        matched = match(self.ckpt_to_initialize_from, shapes, self.section.exclude)
        self.tell(matched)
        wanted = [_own(part) for name in matched.keys for part in variables[name]]
        return iter((self.ckpt_to_initialize_from, wanted, None, matched.keys))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Deferred:
        """Of each task in a cluster TensorFlow copies the Estimator; a tuple's own copy would unpack it, too early."""
        return self


def _own(variable: Any) -> Any:
    """The variable within that of `central_storage`, whose own initial value nobody reads."""
    return getattr(variable, "_v", variable)


def begin_with(estimator: tf.estimator.Estimator, section: WarmStart, tell: Callable[[Matched], None]) -> None:
    """Has an Estimator begin with other weights.

    Args:
        estimator: Anyone's; what it begins with by itself is read first, and these weights replace it.
        tell: Is told what the user should know of it.
    """
    settings = _Deferred(section.prefix, vars_to_warm_start=".*")
    settings.section, settings.tell, settings.own = section, tell, estimator._warm_start_settings
    estimator._warm_start_settings = settings
