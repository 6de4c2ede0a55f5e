"""The last intact checkpoint of a training folder."""

from __future__ import annotations

import fnmatch
import os
import shutil
from typing import Optional

import tensorflow as tf
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState
from tfx.utils import path_utils

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.checkpoint import check_answers, damage, step_of
from tfx_estimator.model_fn.bridge.written import PROOF
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

_WORKERS = "tmp_worker_*"
_DRAFTS = "model.ckpt-*_temp*"
_INDEX = "model.ckpt-*.index"

logger = get_logger("trainer")


def folder_of(training_dir: str) -> str:
    """Finds the folder with the checkpoints: this or a subfolder; TFX's examples use `fn_args.serving_model_dir`."""
    # First these two: another subfolder may hold pretrained weights.
    for folder in (training_dir, path_utils.serving_model_dir(training_dir)):
        if tf.io.gfile.glob(os.path.join(folder, _INDEX)):
            return folder
    found = tf.io.gfile.glob(os.path.join(training_dir, "*", _INDEX))
    own = [path for path in found if not fnmatch.fnmatch(os.path.basename(os.path.dirname(path)), _WORKERS)]
    newest = max(own, key=lambda path: step_of(path[: -len(".index")]), default="")
    if not newest:
        check_answers(training_dir)
    return os.path.dirname(newest) or training_dir


def last_step(training_dir: str) -> Optional[int]:
    """Returns the global step in the name of the last checkpoint, if there is one."""
    paths = tf.io.gfile.glob(os.path.join(folder_of(training_dir), _INDEX))
    return max((step_of(path[: -len(".index")]) for path in paths), default=None)


def adopt(checkpoint: str, training_dir: str) -> None:
    """Copies a checkpoint of another training as the first of this one, atomically.

    Args:
        checkpoint: Path without `.index`; its name ends with its step.
    """
    own = os.path.join(training_dir, f"model.ckpt-{step_of(checkpoint)}")
    proof = os.path.join(os.path.dirname(os.path.dirname(checkpoint)), PROOF)
    if tf.io.gfile.exists(proof):  # written by a conversion; the report of this training shows it
        tf.io.gfile.copy(proof, os.path.join(training_dir, PROOF), overwrite=True)
    # The index last: a checkpoint is found by its index.
    for path in sorted(tf.io.gfile.glob(f"{checkpoint}.*"), key=lambda each: each.endswith(".index")):
        draft = os.path.join(training_dir, f"adopted{path[len(checkpoint) :]}")
        tf.io.gfile.copy(path, draft, overwrite=True)
        tf.io.gfile.rename(draft, f"{own}{path[len(checkpoint) :]}", overwrite=True)
    _write_state(training_dir, [own])


class TrainingCheckpoints:
    """The supervisor's view of the checkpoints in a training folder."""

    def __init__(self, training_dir: str) -> None:
        self._training_dir = training_dir

    def drop_damaged(self) -> Optional[int]:
        """Makes the newest intact checkpoint the latest one, so that a damaged one does not fail the next attempt.

        Returns:
            The global step to resume from; None if there is no checkpoint.
        """
        folder = folder_of(self._training_dir)
        state = _state(folder)
        found = {path[: -len(".index")] for path in tf.io.gfile.glob(os.path.join(folder, _INDEX))}
        if state is not None:
            # The folder may have been moved since.
            found |= {os.path.join(folder, os.path.basename(path)) for path in state.all_model_checkpoint_paths}
        candidates = sorted(found, key=step_of)
        damaged = []
        while candidates:
            reason = damage(candidates[-1])
            if reason is None:
                break
            logger.warning(f"checkpoint {candidates[-1]} is damaged ({reason}); falling back to the previous one")
            damaged.append(candidates.pop())
        for path in damaged:
            for name in tf.io.gfile.glob(f"{path}.*"):
                tf.io.gfile.rename(name, os.path.join(folder, f"damaged-{os.path.basename(name)}"), overwrite=True)
        if not candidates:
            if damaged and tf.io.gfile.exists(os.path.join(folder, "checkpoint")):
                tf.io.gfile.remove(os.path.join(folder, "checkpoint"))
            return None
        if state is None or state.model_checkpoint_path != candidates[-1] or damaged:
            _write_state(folder, candidates)
        return step_of(candidates[-1])

    def tidy(self) -> None:
        """Prepares the folder for its move: removes the workers' folders and partly written checkpoints."""
        places = [(*within, each) for each in (_WORKERS, _DRAFTS) for within in ((), ("*",))]
        patterns = [os.path.join(self._training_dir, *place) for place in places]
        for folder in [path for pattern in patterns for path in tf.io.gfile.glob(pattern)]:
            if is_address(folder):
                tf.io.gfile.rmtree(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        # The savers of some Estimators write absolute paths, which would be wrong after the move.
        training_dir = folder_of(self._training_dir)
        state = _state(training_dir)
        # Those of other savers, such as Keras's callbacks, may be elsewhere.
        paths = list(state.all_model_checkpoint_paths) if state is not None else []
        if paths and {os.path.dirname(path) for path in paths} == {os.path.normpath(training_dir)}:
            _write_state(training_dir, paths)


def _write_state(training_dir: str, paths: list[str]) -> None:
    """Writes the file `checkpoint`, newest last, with relative paths: the folder is moved when training has ended."""
    names = [os.path.basename(path) for path in paths]
    # A CheckpointManager ignores checkpoints without a timestamp, and never removes them.
    times = [_time_of(os.path.join(training_dir, name)) for name in names]
    state = CheckpointState(
        model_checkpoint_path=names[-1], all_model_checkpoint_paths=names, all_model_checkpoint_timestamps=times
    )
    write_whole(os.path.join(training_dir, "checkpoint"), str(state))


def _state(training_dir: str) -> Optional[CheckpointState]:
    """Reads the file `checkpoint`; None if it is missing, or damaged, as a full disk leaves it."""
    try:
        return tf.train.get_checkpoint_state(training_dir)
    except ValueError:  # an empty or binary file; TensorFlow returns None for other damage
        return None


def _time_of(path: str) -> float:
    """Returns when a checkpoint was written, in seconds; 0 if it has been removed."""
    try:
        return tf.io.gfile.stat(f"{path}.index").mtime_nsec / 1e9
    except tf.errors.NotFoundError:
        return 0.0
