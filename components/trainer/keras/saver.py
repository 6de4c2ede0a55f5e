"""The checkpoints of a Keras training: weights, the optimizer's slots, and the step.

`tf.train.CheckpointManager`, not `BackupAndRestore`: a checkpoint at each declared step, under the name that the
supervisor looks for, of which several are kept, so that a damaged last one costs an interval and not the training. The
step tells the input where to go on, which neither of the two, nor PreemptionCheckpointHandler, keeps.

Source: https://www.tensorflow.org/guide/checkpoint.
"""

from __future__ import annotations

import os
from typing import Optional

import tensorflow as tf

from tfx_estimator.components.trainer.checkpoint import step_of
from tfx_estimator.components.trainer.protocol.task_spec import WORKER, TaskSpec
from tfx_estimator.model_fn.user_models.warm_start import finalize
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.text import first_line

_PREFIX = "model.ckpt"


class Saver:
    """Saves and restores a compiled model, and keeps the newest checkpoints.

    In a cluster all tasks save, and only what the chief saves is kept.
    """

    def __init__(self, model: tf.keras.Model, folder: str, keep: int, task: TaskSpec) -> None:
        self._folder, self._model = folder, model
        self._checkpoint = checkpoint_of(model)
        own = os.path.join(folder, f"tmp_worker_{task.index}") if task.type == WORKER else folder
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, own, keep if own == folder else 1, checkpoint_name=_PREFIX
        )

    def restore(self) -> int:
        """Restores the newest checkpoint of the chief, and returns its global step; 0 if there is none."""
        latest = latest_checkpoint(self._folder)
        if latest is not None:
            try:
                self._checkpoint.restore(latest).assert_existing_objects_matched()
            except (AssertionError, ValueError) as error:
                raise TrainingError(
                    f"checkpoint {latest} does not fit the model: {first_line(error)}",
                    expected="a checkpoint of the same network and optimizer",
                    todo=f"change trainer.model back, or remove {self._folder} to start at step 0",
                ) from error
            finalize(self._model)
        return step_of(latest)

    def save(self, step: int) -> None:
        """Saves a checkpoint."""
        self._manager.save(checkpoint_number=step)


def checkpoint_of(model: tf.keras.Model) -> tf.train.Checkpoint:
    """What a checkpoint holds of a model: by the names of its objects, whatever strategy made it."""
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def restore_weights(model: tf.keras.Model, path: str) -> None:
    """Restores the weights of a checkpoint alone, for evaluation and serving."""
    status = tf.train.Checkpoint(model=model).restore(path).expect_partial()
    try:
        status.assert_existing_objects_matched()
    except AssertionError:
        # Metrics may make their variables in the first evaluation, which no checkpoint of the training holds.
        known = {id(each) for each in status._checkpoint.object_by_proto_id.values()}
        known |= {id(each) for metric in model.metrics for each in metric.variables}
        if any(id(each) not in known for each in model.weights):
            raise
    finalize(model)


def latest_checkpoint(folder: str) -> Optional[str]:
    """Returns the newest checkpoint of a training folder; None if there is none."""
    return tf.train.latest_checkpoint(folder)
