"""The section `deploy.vertex`: the Trainer as a custom job of Vertex AI, on machines of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
_MACHINE_TYPE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
_ACCELERATOR = re.compile(r"[A-Z][A-Z0-9_]+")
_NETWORK = re.compile(r"projects/[0-9]+/global/networks/[a-z]([a-z0-9-]*[a-z0-9])?")
FLEX_START = "flex_start"
# Source: https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws. Newer kinds than these it takes.
_MOST_QUEUED_SECONDS, _WEEK = 7 * 24 * 3600, "at most 604800, a week"
_NOT_QUEUED = re.compile(r"NVIDIA_TESLA_(K80|P4|P100|T4|V100)")


class Machine(Section):
    """A machine of Vertex AI's."""

    machine_type: str = Field(default="n1-standard-4", description="as Vertex AI calls it")
    accelerator: Optional[str] = Field(default=None, description="as NVIDIA_TESLA_T4; null for none")
    accelerators: Optional[conint(ge=1, le=16)] = Field(  # type: ignore[valid-type]
        default=None, description="how many of them; null is 1"
    )
    disk_gb: Optional[conint(ge=100, le=64000)] = Field(  # type: ignore[valid-type]
        default=None, description="size of the boot disk; null is the service's own, 100"
    )


class ReplicaMachine(Section):
    """What the replicas of one role have otherwise than `machine`."""

    machine_type: Optional[str] = Field(default=None, description="null is machine's")
    accelerator: Optional[str] = Field(default=None, description="null is machine's")
    accelerators: Optional[conint(ge=0, le=16)] = Field(  # type: ignore[valid-type]
        default=None, description="how many of them; null is machine's, 0 is none"
    )
    disk_gb: Optional[conint(ge=100, le=64000)] = Field(  # type: ignore[valid-type]
        default=None, description="size of the boot disk; null is machine's"
    )


class VertexJob(Section):
    """The custom job that trains: one replica for each process of `trainer.distribution`."""

    machine: Machine = Field(default=Machine(), description="of every replica, but for what is said of its role below")
    chief: Optional[ReplicaMachine] = Field(default=None, description="of the chief")
    worker: Optional[ReplicaMachine] = Field(default=None, description="of the other processes that train")
    ps: Optional[ReplicaMachine] = Field(default=None, description="of the parameter servers")
    evaluator: Optional[ReplicaMachine] = Field(default=None, description="of the evaluator")
    network: Optional[str] = Field(
        default=None, description="to peer with: projects/NUMBER/global/networks/NAME; null for none"
    )
    timeout_seconds: Optional[conint(ge=60, le=60 * 24 * 3600)] = Field(  # type: ignore[valid-type]
        default=None, description="longest time of the job; null is the service's own, a week"
    )
    scheduling: Literal["standard", "spot", "flex_start"] = Field(
        default="standard",
        description="where its machines come from: spot is cheaper, and may be taken away at any time; flex_start "
        "waits for accelerators, however long",
    )

    def machines(self, distribution: Distribution) -> dict[str, tuple[int, Machine]]:
        """Returns how many replicas of each role there are, and on which machine; roles without one are left out."""
        return {role: (count, self._of(role)) for role, count in distribution.pods.items()}

    def _of(self, role: str) -> Machine:
        own = getattr(self, role) or ReplicaMachine()
        told = {name: value for name, value in own.dict().items() if value is not None}
        if told.get("accelerators") == 0:
            told.update(accelerator=None, accelerators=None)
        return self.machine.copy(update=told)


def check_vertex_job(job: VertexJob, distribution: Distribution) -> Iterator[Problem]:
    """Checks the section against the cluster that is declared.

    Args:
        distribution: `trainer.distribution`.
    """
    there = job.machines(distribution)
    for role in ("machine", CHIEF, WORKER, PS, EVALUATOR):
        if (machine := getattr(job, role)) is None:
            continue
        path = f"deploy.vertex.{role}"
        if role != "machine" and role not in there:
            what, expected = f"trainer.distribution has no {role}", "machines of " + ", ".join(there)
            yield Problem(path, what, expected, "remove it, or declare such a process")
        if machine.machine_type is not None and not _MACHINE_TYPE.fullmatch(machine.machine_type):
            what, expected = "this is no type of machine", "as n1-standard-8"
            yield Problem(f"{path}.machine_type", what, expected, "correct it", value=machine.machine_type)
        if machine.accelerator is not None and not _ACCELERATOR.fullmatch(machine.accelerator):
            what, expected = "this is no accelerator of Vertex AI", "as NVIDIA_TESLA_T4"
            yield Problem(f"{path}.accelerator", what, expected, "correct it", value=machine.accelerator)
        if machine.accelerators and not (machine.accelerator or job.machine.accelerator):
            what, todo = "the type of accelerator is missing", f"add `accelerator:` under `{path}`"
            yield Problem(f"{path}.accelerators", what, "accelerator: KIND", todo)
    if job.network is not None and not _NETWORK.fullmatch(job.network):
        what, expected = "this is no network that Vertex AI takes", "projects/NUMBER/global/networks/NAME"
        todo = "name the project by its number: gcloud projects describe ID --format 'value(projectNumber)'"
        yield Problem("deploy.vertex.network", what, expected, todo, value=job.network)
    if job.scheduling == FLEX_START:
        yield from _check_queued(job, there)


def _check_queued(job: VertexJob, there: Mapping[str, tuple[int, Machine]]) -> Iterator[Problem]:
    """Checks what only a job is asked that waits for its machines."""
    path, kinds = "deploy.vertex.scheduling", {each.accelerator or "" for _, each in there.values()}
    if unfit := sorted(kind for kind in kinds if not kind or _NOT_QUEUED.fullmatch(kind)):
        what = (
            f"machines with {unfit[0]} are not queued for" if unfit[0] else "machines without GPUs are not queued for"
        )
        expected = "NVIDIA_L4, or an A100, H100, H200 or B200, in every machine"
        todo = "declare `accelerator:` under `deploy.vertex.machine`, or take another scheduling"
        yield Problem(path, what, expected, todo, value=FLEX_START, depends=("deploy.vertex.machine",))
    if len({(each.machine_type, each.accelerator, each.accelerators or 1) for _, each in there.values()}) > 1:
        what, expected = "a job that is queued for has one kind of machine", "the same machine of every role"
        todo = "say it under `deploy.vertex.machine`, and nothing else of a role"
        yield Problem(path, what, expected, todo, value=FLEX_START, depends=("deploy.vertex.machine",))
    if job.timeout_seconds is not None and job.timeout_seconds > _MOST_QUEUED_SECONDS:
        what, todo = "a job that is queued for ends after a week", "lower it; what is submitted again goes on"
        given = str(job.timeout_seconds)
        yield Problem("deploy.vertex.timeout_seconds", what, _WEEK, todo, value=given, depends=(path,))
