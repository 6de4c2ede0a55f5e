"""Warnings before a deployment to Kubeflow Pipelines."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import Nodes
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.platforms.kubeflow.pods import pod_of


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    lacks: dict[str, list[str]] = {}
    for step in Nodes.steps():
        for field in pod_of(case.deploy, step)[1]:
            lacks.setdefault(field, []).append(step)
    for field, steps in lacks.items():
        which = "the steps" if len(steps) == len(Nodes.steps()) else ", ".join(steps)
        yield f"deploy.pod_patch: {field} has no effect on {which}: kfp-kubernetes has no field for it"
