"""The rules of the platforms, each imported on demand."""

from __future__ import annotations

from typing import Any

from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TRAINJOB, VERTEX


def rules_of(name: str) -> Any:
    """Returns the module of a platform's rules: `RULES`, and `note`, which warns before a deployment."""
    if name == VERTEX:
        from tfx_estimator.pipeline.platforms.vertex import rules

        return rules
    if name == KUBEFLOW:
        from tfx_estimator.pipeline.platforms.kubeflow import rules

        return rules
    from tfx_estimator.pipeline.platforms.training_jobs import rules

    return rules


def all_rules() -> list[Any]:
    """Returns the rules of all platforms."""
    return [rule for name in (VERTEX, KUBEFLOW, TRAINJOB) for rule in rules_of(name).RULES]
