"""Transform: examples + schema -> transform_graph, with a check of the preprocessing_fn's result."""

from __future__ import annotations

from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.transform import executor

__all__ = ["Transform"]


class Transform(component.Transform):
    """TFX's Transform, with an error that names a preprocessing_fn whose result is invalid.

    TFX's own fails later, with an error that names neither the function nor its file.

    Inputs, outputs and arguments are those of `tfx.components.Transform`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
