"""Rules of Kubeflow Pipelines, and warnings before a deployment there."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import Nodes
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.platforms.kubeflow.pods import pod_of
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW

RULES = given(
    lambda case: case.target == KUBEFLOW,
    Rule(
        "deploy.volumes",
        lambda case: any(volume.read_only for volume in case.deploy.volumes) and {"value": ""},
        "{platform.title} lets steps write in each",
        "remove read_only",
        "false",
    ),
)


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    lacks: dict[str, list[str]] = {}
    for step in Nodes.steps():
        for field in pod_of(case.deploy, step)[1]:
            lacks.setdefault(field, []).append(step)
    for field, steps in lacks.items():
        which = "the steps" if len(steps) == len(Nodes.steps()) else ", ".join(steps)
        yield f"deploy.pod_patch: {field} has no effect on {which}: kfp-kubernetes has no field for it"
    left = f"a cancelled run leaves its {{}} running, as {case.platform.title} does not signal the step"
    if case.beam.runner == "dataflow":
        yield f"beam.runner is dataflow: {left.format('Dataflow job')}: cancel it yourself, see docs/dataflow.md"
    if case.deploy.trainjob.train:
        yield f"deploy.trainjob.train: {left.format('TrainJob')}: delete it yourself, by `kubectl delete trainjob`"
