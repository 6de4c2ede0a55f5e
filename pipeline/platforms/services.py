"""What does a platform's work, each imported on demand: its compiler, and its service."""

from __future__ import annotations

from typing import Any

from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, VERTEX


def compiler_of(target: str) -> Any:
    """Returns a platform's module `compile`."""
    if target == VERTEX:
        from tfx_estimator.pipeline.platforms.vertex import compile as vertex

        return vertex
    if target == KUBEFLOW:
        from tfx_estimator.pipeline.platforms.kubeflow import compile as kubeflow

        return kubeflow
    from tfx_estimator.pipeline.platforms.training_jobs import compile as training_jobs

    return training_jobs


def service_of(target: str) -> Any:
    """Returns a platform's module `service`."""
    if target == VERTEX:
        from tfx_estimator.pipeline.platforms.vertex import service as vertex

        return vertex
    if target == KUBEFLOW:
        from tfx_estimator.pipeline.platforms.kubeflow import service as kubeflow

        return kubeflow
    from tfx_estimator.pipeline.platforms.training_jobs import service as training_jobs

    return training_jobs


def adapt(job: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """See `kubeflow.adapt.adapt`."""
    from tfx_estimator.pipeline.platforms.kubeflow import adapt as module

    return module.adapt(job)
