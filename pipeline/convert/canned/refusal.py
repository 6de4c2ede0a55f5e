"""What a canned Estimator has, and no written network can."""

from __future__ import annotations

from tfx_estimator.pipeline.base.errors import UserCodeError


def refused(what: str, todo: str = "") -> UserCodeError:
    """Returns the error of something that cannot be written yet."""
    return UserCodeError(
        f"{what} cannot be written as a Keras model yet",
        expected="DNN, Linear or DNNLinearCombined, with what docs/way-out-canned.md names",
        todo=todo or "write this part by hand, and convert the rest without it; or keep its graph, by --keep-graph",
    )
