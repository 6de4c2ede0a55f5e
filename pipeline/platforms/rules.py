"""The rules of the platforms, each imported on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TRAINJOB, VERTEX


def rules_of(name: str) -> Any:
    """Returns the module of a platform's rules.

    It has `RULES`; `note`, which warns before a deployment; and of a section `deploy`, the resources of a `step`, the
    `machines` of a training by role, and `idle_steps`.
    """
    from tfx_estimator.pipeline.platforms.kubeflow import rules as kubeflow
    from tfx_estimator.pipeline.platforms.training_jobs import rules as training_jobs
    from tfx_estimator.pipeline.platforms.vertex import rules as vertex

    return {VERTEX: vertex, KUBEFLOW: kubeflow}.get(name, training_jobs)


def accelerated(deploy: Any, target: str) -> Iterator[tuple[str, Any, Any, str]]:
    """Yields what may have accelerators: see `config.deploy.Accelerated`."""
    for name, node in deploy.nodes.sections():
        yield f"deploy.nodes.{name}", node, deploy.nodes.of(name).accelerator, target
    for name in (VERTEX, TRAINJOB):
        yield from rules_of(name).accelerated(deploy)


def all_rules() -> list[Any]:
    """Returns the rules of all platforms."""
    return [rule for name in (VERTEX, KUBEFLOW, TRAINJOB) for rule in rules_of(name).RULES]
