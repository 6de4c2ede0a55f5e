"""Whether a checkpoint can be read."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.errors import TrainingError

# A checkpoint that cannot be reached is not damaged.
_OUT_OF_REACH = ("permission", "unavailable", "unauthenticated", "deadline", "timed out", "cancelled")


def damage(path: str) -> Optional[str]:
    """Says why a checkpoint cannot be read; None if it can. All of it is read: each tensor bears a checksum.

    Raises:
        TrainingError: It can be neither read nor called damaged.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        if any(word in reason.lower().replace("_", " ") for word in _OUT_OF_REACH):
            raise TrainingError(
                f"checkpoint {path} cannot be read: {reason}",
                expected="a folder that this process can read",
                todo="give it access, or run the same again once the folder can be reached",
            ) from error
        return reason
    return None
