"""Rules of Vertex AI, and warnings before a deployment there."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import Accelerated, DeploySection, Machine, Node, gpus
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.platforms.registry import VERTEX

# Source: https://cloud.google.com/vertex-ai/docs/general/locations. Google adds regions, so an unknown one is no error.
_PLACES = {
    "africa": "south1",
    "asia": "east1 east2 northeast1 northeast2 northeast3 south1 south2 southeast1 southeast2",
    "australia": "southeast1 southeast2",
    "europe": "central2 north1 north2 southwest1 west1 west12 west2 west3 west4 west6 west8 west9",
    "me": "central1 central2 west1",
    "northamerica": "northeast1 northeast2",
    "southamerica": "east1 west1",
    "us": "central1 east1 east4 east5 east7 south1 west1 west2 west3 west4 west8",
}
REGIONS = frozenset(f"{area}-{place}" for area, places in _PLACES.items() for place in places.split())

_NEEDED = {"project": "the ID of a Google Cloud project", "region": "the region of the bucket: europe-west4"}


def _missing(case: Case) -> list[dict[str, str]]:
    needed = _NEEDED.items()
    return [{"key": key, "allowed": expected} for key, expected in needed if getattr(case.deploy, key) is None]


def _of_pods(case: Case) -> list[dict[str, str]]:
    return [{"key": key, "value": ""} for key in ("volumes", "shared_memory_gb") if getattr(case.deploy, key)]


RULES = (
    *given(
        lambda case: case.target == VERTEX,
        Rule("deploy.{key}", _missing, "the target {target} needs it", "name it: deploy.{key}", "{allowed}"),
        Rule("deploy.{key}", _of_pods, "{platform.title} has none", "remove it, or deploy elsewhere", "a bucket"),
    ),
    Rule(
        "deploy.vertex",
        lambda case: case.target not in ("", VERTEX) and case.deploy.vertex is not None and {"value": ""},
        f"it is for the target {VERTEX} only",
        "remove it, or compile for that",
        "null",
    ),
)


def step(deploy: DeploySection, name: str) -> Node:
    """Returns the resources of a step; a Trainer that only waits for its custom job uses none of nodes.default's."""
    node = deploy.nodes.of(name)
    if name != "Trainer" or deploy.vertex is None:
        return node
    return (deploy.nodes.Trainer or Node()).copy(update={"retries": node.retries})


def machines(deploy: DeploySection, distribution: Distribution, target: str) -> dict[str, Machine]:
    """Returns the machine of each role; none if all processes share that of the step."""
    if (job := deploy.vertex) is None:
        return {}
    return {
        role: (
            f"each {role} of the custom job",
            f"deploy.vertex.{role if getattr(job, role) else 'machine'}",
            gpus(machine.accelerator, machine.accelerators),
        )
        for role, (_, machine) in job.machines(distribution).items()
    }


def idle_steps(deploy: DeploySection, target: str) -> Iterator[tuple[str, str]]:
    """Yields steps whose resources have no effect, and why."""
    if deploy.vertex is not None:
        yield "Trainer", "the step only waits for the custom job; set the resources in deploy.vertex"


def accelerated(deploy: DeploySection) -> Iterator[Accelerated]:
    """Yields what may have accelerators."""
    if job := deploy.vertex:
        for name, machine in job.sections():
            yield f"deploy.vertex.{name}", machine, machine.accelerator or job.machine.accelerator, VERTEX


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    if case.deploy.pod_patch:
        yield "deploy.pod_patch: no effect: Vertex AI has no pods of yours; see deploy.vertex, and the steps' nodes"
    region = case.deploy.region
    if region and region not in REGIONS:
        near = nearest(region, REGIONS)
        meant = f"did you mean `{near}`?" if near else "see https://cloud.google.com/vertex-ai/docs/general/locations"
        yield f"deploy.region: {region!r} is none of the known regions of Vertex AI: {meant}"
