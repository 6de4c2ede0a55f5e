"""tf.estimator.RunConfig from the declaration."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from pipeline.config.trainer import TrainerSection


def make_run_config(
    section: TrainerSection,
    model_dir: str,
    train_distribute: Optional[tf.distribute.Strategy],
    eval_distribute: Optional[tf.distribute.Strategy],
) -> tf.estimator.RunConfig:
    """Builds the RunConfig.

    Args:
        section: The declared trainer.
        model_dir: Folder of checkpoints and TensorBoard events.
        train_distribute: Strategy of training.
        eval_distribute: Strategy of evaluation.

    Returns:
        The RunConfig.
    """
    return tf.estimator.RunConfig(
        model_dir=model_dir,
        tf_random_seed=section.seed,
        save_summary_steps=section.log_every_steps,
        save_checkpoints_steps=section.checkpoint_steps,
        keep_checkpoint_max=section.keep_checkpoint_max,
        log_step_count_steps=section.log_every_steps,
        train_distribute=train_distribute,
        eval_distribute=eval_distribute,
        session_config=tf.compat.v1.ConfigProto(allow_soft_placement=True),
    )
