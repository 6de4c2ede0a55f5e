"""The section `deploy.vertex`: the Trainer as a custom job of Vertex AI, on its own machines."""

from __future__ import annotations

from typing import Literal, Optional

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.section import Field, Section, number


class Machine(Section):
    """A machine of Vertex AI."""

    machine_type: str = Field(default="n1-standard-4", description="Vertex AI's name of it")
    accelerator: Optional[str] = Field(default=None, description="for example NVIDIA_TESLA_T4; null for none")
    accelerators: Optional[int] = number(None, 1, 16, "how many of them; null is 1")
    disk_gb: Optional[int] = number(None, 100, 64000, "size of the boot disk; null is the service's own, 100")


class ReplicaMachine(Section):
    """Overrides of `machine` for the replicas of one role."""

    machine_type: Optional[str] = Field(default=None, description="null is machine's")
    accelerator: Optional[str] = Field(default=None, description="null is machine's")
    accelerators: Optional[int] = number(None, 0, 16, "how many of them; null is machine's, 0 is none")
    disk_gb: Optional[int] = number(None, 100, 64000, "size of the boot disk; null is machine's")


class VertexJob(Section):
    """The custom job that trains: one replica for each process of `trainer.distribution`."""

    machine: Machine = Field(default=Machine(), description="of every replica, unless overridden for its role below")
    chief: Optional[ReplicaMachine] = Field(default=None, description="of the chief")
    worker: Optional[ReplicaMachine] = Field(default=None, description="of the other processes that train")
    ps: Optional[ReplicaMachine] = Field(default=None, description="of the parameter servers")
    evaluator: Optional[ReplicaMachine] = Field(default=None, description="of the evaluator")
    network: Optional[str] = Field(
        default=None, description="network to peer with: projects/NUMBER/global/networks/NAME; null for none"
    )
    timeout_seconds: Optional[int] = number(
        None, 60, 60 * 24 * 3600, "longest time of the job; null is the service's own, a week"
    )
    scheduling: Literal["standard", "spot", "flex_start"] = Field(
        default="standard",
        description="provisioning of its machines: spot is cheaper, and may be preempted at any time; flex_start waits "
        "for accelerators without limit",
    )

    def machines(self, distribution: Distribution) -> dict[str, tuple[int, Machine]]:
        """Returns the number of replicas and their machine by role; roles without replicas are omitted."""
        return {role: (count, self._of(role)) for role, count in distribution.pods.items()}

    def _of(self, role: str) -> Machine:
        own = getattr(self, role) or ReplicaMachine()
        overrides = {name: value for name, value in own.dict().items() if value is not None}
        if overrides.get("accelerators") == 0:
            overrides.update(accelerator=None, accelerators=None)
        return self.machine.copy(update=overrides)


SECTIONS = {
    "vertex": (
        VertexJob,
        Field(None, "trains as a custom job of Vertex AI, on machines of its own; null trains in the step's container"),
    )
}
