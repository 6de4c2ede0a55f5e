"""Registers s3:// in each process that imports TensorFlow."""

from __future__ import annotations

from tfx_estimator.pipeline.base.after_tensorflow import after_tensorflow
from tfx_estimator.pipeline.base.s3 import is_installed


def register_with_tensorflow() -> None:
    """Registers s3:// in this process, now or as soon as TensorFlow is imported; without boto3 nothing changes."""
    if is_installed():
        after_tensorflow(_register)


def _register() -> None:
    from tfx_estimator.pipeline.base.s3.plugin import register

    register()
