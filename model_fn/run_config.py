"""tf.estimator.RunConfig from the declaration."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from tfx_estimator.pipeline.config.trainer import TrainerSection


def make_run_config(section: TrainerSection, model_dir: str) -> tf.estimator.RunConfig:
    """Builds the RunConfig; the strategies are added to whichever RunConfig a trainer_fn builds."""
    return tf.estimator.RunConfig(
        model_dir=model_dir,
        tf_random_seed=section.seed,
        save_summary_steps=section.report_steps,
        save_checkpoints_steps=section.checkpoint_steps,
        keep_checkpoint_max=section.keep_checkpoint_max,
        log_step_count_steps=section.report_steps,
        session_config=_session_config(section),
    )


def _session_config(section: TrainerSection) -> tf.compat.v1.ConfigProto:
    # A session makes logical CPUs of its own, whatever tf.config says.
    cpus = {"device_count": {"CPU": section.logical_cpus}} if section.logical_cpus else {}
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, **cpus)
    config.experimental.disable_thread_spinning = not section.spinning
    if section.xla:
        # Under a strategy TensorFlow would fuse operations within the step as well, into some that XLA does not know.
        config.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
    return config
