"""What a declaration must not say where it is compiled for Kubeflow Pipelines 2; 1 takes all that can be declared."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.deploy import NO_DEADLINE, not_of_steps
from tfx_estimator.pipeline.config.rules.rule import Rule, given
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW_V2

RULES = given(
    lambda case: case.target == KUBEFLOW_V2,
    Rule(
        "deploy.volumes",
        lambda case: any(volume.read_only for volume in case.deploy.volumes) and {"value": ""},
        "Kubeflow Pipelines 2 mounts every volume so that steps may write there",
        "remove read_only",
        "read_only: false",
    ),
    not_of_steps({"timeout_seconds": NO_DEADLINE}),
)


def find_idle(case: Case) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields keys that have no effect there, by their beginnings, and why."""
    if case.target == KUBEFLOW_V2:
        why = "a PipelineSpec has no field for it; the cluster's own settings hold, see docs/kubeflow.md"
        yield ("deploy.security_context.",), why


def note(case: Case) -> Iterator[str]:
    """Yields what should be known before it is deployed."""
    if case.target == KUBEFLOW_V2 and case.declaration.beam.runner == "dataflow":
        yield (
            "beam.runner is dataflow: a run that is cancelled leaves its Dataflow job at work, for Kubeflow "
            "Pipelines 2 tells the step nothing: cancel it yourself, see docs/dataflow.md"
        )
