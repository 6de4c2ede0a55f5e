"""Who runs a custom job: Vertex AI, or, in a rehearsal, this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import JobServiceClient

# Set where a compiled pipeline is executed on this machine: nothing is created elsewhere then.
REHEARSAL = "TFX_ESTIMATOR_REHEARSAL"
SUCCEEDED, FAILED, CANCELLED = "JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
ENDED = (SUCCEEDED, FAILED, CANCELLED, "JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED")


class Status(NamedTuple):
    """How a job goes.

    Args:
        state: As Vertex AI calls it.
        message: What went wrong; empty if nothing did.
    """

    state: str
    message: str = ""


class Service(Protocol):
    """Runs custom jobs."""

    def create(self, job: dict[str, Any]) -> str:
        """Creates a job; returns its name."""

    def status(self, name: str) -> Status:
        """Returns how a job goes."""

    def cancel(self, name: str) -> None:
        """Asks for its end."""


class VertexService:
    """Vertex AI.

    Args:
        client: Of the region.
        project: Of Google Cloud.
        region: Of Vertex AI.
    """

    def __init__(self, client: JobServiceClient, project: str, region: str) -> None:
        self._client = client
        self._parent = f"projects/{project}/locations/{region}"

    @classmethod
    def of(cls, project: str, region: str) -> VertexService:
        """Returns the service, with the credentials of the step's account."""
        from google.cloud.aiplatform_v1 import JobServiceClient

        client = JobServiceClient(client_options={"api_endpoint": f"{region}-aiplatform.googleapis.com"})
        return cls(client, project, region)

    def create(self, job: dict[str, Any]) -> str:
        """See Service."""
        return self._client.create_custom_job(parent=self._parent, custom_job=job).name

    def status(self, name: str) -> Status:
        """See Service."""
        job = self._client.get_custom_job(name=name)
        return Status(job.state.name, job.error.message if job.error else "")

    def cancel(self, name: str) -> None:
        """See Service."""
        self._client.cancel_custom_job(name=name)


def is_rehearsed() -> bool:
    """Is the pipeline executed on this machine."""
    return bool(os.environ.get(REHEARSAL))
