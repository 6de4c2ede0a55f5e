"""Rules of Kubeflow Pipelines, and warnings before a deployment there."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import DeploySection, Machine, Nodes
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.platforms.kubeflow.pods import pod_of
from tfx_estimator.pipeline.platforms.kubeflow.pods import step as step
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TRAINJOB
from tfx_estimator.pipeline.platforms.training_jobs import rules as training_jobs

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


def machines(deploy: DeploySection, distribution: Distribution, target: str) -> dict[str, Machine]:
    """Returns the machine of each role; none if all processes share that of the step."""
    return training_jobs.machines(deploy, distribution, TRAINJOB) if deploy.trainjob.train else {}


def idle_steps(deploy: DeploySection, target: str) -> Iterator[tuple[str, str]]:
    """Yields steps whose resources have no effect, and why."""
    return iter(())


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    lacks: dict[str, list[str]] = {}
    for name in Nodes.steps():
        for field in pod_of(case.deploy, name)[1]:
            lacks.setdefault(field, []).append(name)
    for field, steps in lacks.items():
        which = "the steps" if len(steps) == len(Nodes.steps()) else ", ".join(steps)
        yield f"deploy.pod_patch: {field} has no effect on {which}: kfp-kubernetes has no field for it"
    left = f"a cancelled run leaves its {{}} running, as {case.platform.title} does not signal the step"
    if case.beam.runner == "dataflow":
        yield f"beam.runner is dataflow: {left.format('Dataflow job')}: cancel it yourself, see docs/dataflow.md"
    if case.deploy.trainjob.train:
        yield f"deploy.trainjob.train: {left.format('TrainJob')}: delete it yourself, by `kubectl delete trainjob`"
