"""Transform: examples + schema -> transform_graph, by a preprocessing_fn that keeps its contract."""

from __future__ import annotations

from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.transform import executor

__all__ = ["Transform"]


class Transform(component.Transform):
    """TFX's Transform, which says what is wrong with what a preprocessing_fn returns.

    TFX's own fails somewhere behind it, in a way that names neither the function nor its file.

    Inputs, outputs and arguments are those of `tfx.components.Transform`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
