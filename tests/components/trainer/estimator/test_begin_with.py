"""An Estimator that begins with weights of another training."""

from __future__ import annotations

import copy

import pytest

from tfx_estimator.pipeline.config.warm_start import WarmStart


@pytest.mark.unit
def test_an_estimator_that_begins_with_weights_can_be_copied_as_each_task_of_a_cluster_does(tmp_path):
    import tensorflow as tf

    from tfx_estimator.components.trainer.estimator.distribute import begin_with

    prefix = tf.train.Checkpoint(weight=tf.Variable(1.0)).write(str(tmp_path / "weights"))
    estimator = tf.estimator.Estimator(lambda features, labels, mode: None, model_dir=str(tmp_path / "model"))
    told = []
    begin_with(estimator, WarmStart(checkpoint=prefix), told.append)
    copied = copy.deepcopy(estimator)
    assert copied is not estimator
    settings = copied._warm_start_settings
    assert settings.ckpt_to_initialize_from == prefix
    assert settings.section.checkpoint == prefix
    # Its graph is not there yet.
    assert told == []
