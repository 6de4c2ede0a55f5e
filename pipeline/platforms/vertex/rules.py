"""What a declaration must not say where it is compiled for Vertex AI."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.deploy import NO_DEADLINE, needed, not_of_steps, resources_of
from tfx_estimator.pipeline.config.rules.rule import Rule, given
from tfx_estimator.pipeline.platforms.registry import VERTEX

_NO_NODES = ("Vertex AI has no nodes of yours, nor taints", "the machines of deploy.vertex")

RULES = (
    Rule(
        "deploy.vertex",
        lambda case: case.target not in ("", VERTEX) and case.deploy.vertex is not None,
        "the target {target} has no custom jobs",
        "remove it, or compile for vertex",
        "null",
    ),
    *given(
        lambda case: case.target == VERTEX,
        needed("project", "the ID of a Google Cloud project"),
        needed("region", "the region of the bucket: europe-west4"),
        Rule(
            "deploy.{key}",
            lambda case: [{"key": key, "value": ""} for key in ("volumes", "secrets") if getattr(case.deploy, key)],
            "Vertex AI has none",
            "remove it, or deploy elsewhere",
            "an object store, and deploy.service_account",
        ),
        not_of_steps({"timeout_seconds": NO_DEADLINE, "node_selector": _NO_NODES, "tolerations": _NO_NODES}),
    ),
)


def find_idle(case: Case) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields keys that have no effect there, by their beginnings, and why."""
    if case.deploy.vertex is not None:
        yield resources_of("Trainer"), "the step only waits for the custom job; deploy.vertex names what trains"
    yield ("deploy.security_context.",), "Vertex AI has no pods of yours"


def note(case: Case) -> Iterator[str]:
    """Yields what should be known before it is deployed."""
    yield from ()
