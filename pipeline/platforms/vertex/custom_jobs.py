"""Who runs a custom job: Vertex AI, or, in a rehearsal, this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Protocol

from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.platforms.follow import Followed, Look
from tfx_estimator.pipeline.platforms.vertex.custom_job import STEP_LABEL
from tfx_estimator.pipeline.platforms.vertex.service import asked

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import JobServiceClient

# Set where a compiled pipeline is executed on this machine: nothing is created elsewhere then.
REHEARSAL = "TFX_ESTIMATOR_REHEARSAL"
SUCCEEDED, FAILED, CANCELLED = "JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
CANCELLING = "JOB_STATE_CANCELLING"
# A state of our own: somebody has deleted the job.
MISSING = "NOT_FOUND"
ENDED = (SUCCEEDED, FAILED, CANCELLED, MISSING, "JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED")


class Service(Followed, Protocol):
    """Runs custom jobs."""

    def create(self, job: dict[str, Any]) -> str:
        """Creates a job; returns its name."""

    def find(self, step: str) -> Optional[str]:
        """Returns the latest job with a step's label that has not failed, if there is one."""


class VertexService:
    """Vertex AI; see Service."""

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
        return asked(lambda: self._client.create_custom_job(parent=self._parent, custom_job=job).name, _refused)

    def find(self, step: str) -> Optional[str]:
        """See Service."""
        request = {"parent": self._parent, "filter": f"labels.{STEP_LABEL}={step}"}
        listed = asked(lambda: list(self._client.list_custom_jobs(request=request)), _refused)
        usable = [job for job in listed if job.state.name == SUCCEEDED or job.state.name not in ENDED]
        return max(usable, key=lambda job: job.create_time).name if usable else None

    def look(self, job: str) -> Look:
        """See Service."""
        from google.api_core.exceptions import NotFound

        def ask() -> Look:
            try:
                found = self._client.get_custom_job(name=job)
            except NotFound as error:
                return Look(MISSING, True, message=str(error))
            message = found.error.message if found.error else ""
            return Look(found.state.name, found.state.name in ENDED, message=message)

        return asked(ask, _refused)

    def cancel(self, job: str) -> None:
        """See Service."""
        self._client.cancel_custom_job(name=job)


def _refused(error: Exception) -> TrainingError:
    return TrainingError(
        f"Vertex AI refuses: {error}",
        expected="an account that may create, list, get and cancel custom jobs, and a job that fits the project",
        todo="see deploy.service_account, deploy.project, deploy.region and deploy.vertex",
    )


def is_rehearsed() -> bool:
    """Is the pipeline executed on this machine."""
    return bool(os.environ.get(REHEARSAL))
