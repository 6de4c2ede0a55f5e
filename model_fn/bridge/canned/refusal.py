"""The error for parts of an Estimator that cannot be converted."""

from __future__ import annotations

from tfx_estimator.pipeline.base.errors import UserCodeError


def refused(what: str, todo: str = "") -> UserCodeError:
    """Returns the error for a part that cannot be converted."""
    return UserCodeError(
        f"{what} cannot be written as a Keras model yet",
        expected="DNN, Linear or DNNLinearCombined, or a model_fn of layers, of the parts in docs/way-out-canned.md",
        todo=todo
        or "write this part by hand, and convert the rest without it; or keep all of it, by --estimator and --to kept",
    )
