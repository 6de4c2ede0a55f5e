"""Who runs a custom job: Vertex AI, or, in a rehearsal, this machine."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Protocol

from tfx_estimator.components.trainer.custom_job.plan import STEP_LABEL

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import JobServiceClient

# Set where a compiled pipeline is executed on this machine: nothing is created elsewhere then.
REHEARSAL = "TFX_ESTIMATOR_REHEARSAL"
SUCCEEDED, FAILED, CANCELLED = "JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
CANCELLING = "JOB_STATE_CANCELLING"
# A state of our own: somebody has deleted the job.
MISSING = "NOT_FOUND"
ENDED = (SUCCEEDED, FAILED, CANCELLED, MISSING, "JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED")


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

    def find(self, step: str) -> Optional[str]:
        """Returns the latest job with a step's label that has not failed, if there is one."""

    def status(self, name: str) -> Status:
        """Returns how a job goes."""

    def cancel(self, name: str) -> None:
        """Asks for its end."""


class VertexService:
    """Vertex AI."""

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

    def find(self, step: str) -> Optional[str]:
        """See Service."""
        listed = self._client.list_custom_jobs(
            request={"parent": self._parent, "filter": f"labels.{STEP_LABEL}={step}"}
        )
        usable = [job for job in listed if job.state.name == SUCCEEDED or job.state.name not in ENDED]
        return max(usable, key=lambda job: job.create_time).name if usable else None

    def status(self, name: str) -> Status:
        """See Service."""
        from google.api_core.exceptions import NotFound

        try:
            job = self._client.get_custom_job(name=name)
        except NotFound as error:
            return Status(MISSING, str(error))
        return Status(job.state.name, job.error.message if job.error else "")

    def cancel(self, name: str) -> None:
        """See Service."""
        self._client.cancel_custom_job(name=name)


def of_client() -> tuple[type[Exception], ...]:
    """Returns the errors of a client of Google's: what else is raised is a mistake of ours, which no wait mends."""
    import grpc
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError


def is_permanent(error: Exception) -> bool:
    """Would the service say the same once more.

    Args:
        error: One of `of_client`, which may not even have asked it.
    """
    from google.api_core import exceptions as of

    refusals = (of.BadRequest, of.Unauthorized, of.Forbidden, of.NotFound, of.MethodNotImplemented)
    # Google's library reports invalid credentials by a subclass of ValueError.
    return isinstance(error, (*refusals, TypeError, ValueError)) or has_no_account(error)


def has_no_account(error: Exception) -> bool:
    """Has an account ended, or what this machine knows of it: whoever gives out tokens has refused one.

    Args:
        error: Of Google's library; that nobody has answered is another matter.
    """
    from google.auth import exceptions as of

    if not isinstance(error, of.RefreshError):
        return False
    # The metadata server of a machine in Google Cloud did not answer, or the service that lends an account has answered
    # with an error.
    said = (error.__cause__, *error.args)
    return not (error.retryable or any(isinstance(each, of.TransportError) or _passes(each) for each in said))


def _passes(said: object) -> bool:
    """Is it an answer in JSON, as of Google's services, of a server that had too much to do, or failed."""
    try:
        code = json.loads(str(said))["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(code, int) and (code == 429 or code >= 500)


def is_rehearsed() -> bool:
    """Is the pipeline executed on this machine."""
    return bool(os.environ.get(REHEARSAL))
