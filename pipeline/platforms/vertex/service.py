"""Vertex AI Pipelines: a pipeline job, with Google's client."""

from __future__ import annotations

import itertools
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms.follow import RESUMES, JobStatus, RefusedError, Started, UnavailableError, failed
from tfx_estimator.pipeline.platforms.note import Note

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import PipelineServiceClient
    from google.cloud.aiplatform_v1.types import PipelineJob, PipelineTaskDetail

# Label of a job: the digest of what was submitted.
LABEL = "tfx_estimator_submission"
_PREFIX = "PIPELINE_STATE_"
_SUCCEEDED = "SUCCEEDED"
# A job in one of these states cannot be continued.
_OVER = ("FAILED", "CANCELLED", "CANCELLING")
_ENDED = (_SUCCEEDED, "FAILED", "CANCELLED")
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_SECONDS = 60.0
LOGIN = "gcloud auth application-default login; or name the file of a key in GOOGLE_APPLICATION_CREDENTIALS"

_Answer = TypeVar("_Answer")


def place_of(deploy: DeploySection, target: str, **_: Optional[str]) -> Note:
    """Returns a note of the submission's destination, without a job yet and without a request."""
    return Note(target, "", project=deploy.project, region=deploy.region)


def where(note: Note) -> str:
    """Returns a description of the destination."""
    return f"project {note.project}, region {note.region}"


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> Vertex:
    """Connects to a note's service; arguments as of `kubeflow.service.connect`."""
    region = note.region or ""
    return Vertex(client_of(region), note.project or "", region, text, name, digest, account)


class Vertex:
    """See `follow.Service`.

    Args:
        text: The compiled document; empty if a job is only followed, as `name` and `digest`.
        account: Service account of the steps; None is the project's default.
    """

    def __init__(
        self,
        client: PipelineServiceClient,
        project: str,
        region: str,
        text: str = "",
        name: str = "",
        digest: str = "",
        account: Optional[str] = None,
    ) -> None:
        self._client, self._project, self._region = client, project, region
        self._text, self._name, self._digest, self._account = text, name, digest, account
        self._parent = f"projects/{project}/locations/{region}"

    def start(self, again: bool) -> Started:
        """See `follow.Service`. A job's name has a digest of its contents, so it cannot be created twice."""
        listed = self._call(self._list)
        for number in itertools.count(1 + max((_number(job) for job in listed), default=0)):
            for job in sorted(listed, key=_number, reverse=True):
                state = _state(job)
                if state not in _OVER and not (again and state == _SUCCEEDED):
                    return Started(job.name, False, state)
            created, name = self._call(partial(self._create, number))
            if created:
                return Started(name, True)
            # The job exists: another process, or an earlier request whose answer was lost, has just created it.
            listed = [self._call(partial(self._get, name))]
        raise AssertionError

    def status(self, job: str) -> JobStatus:
        """See `follow.Service`."""
        found = self._call(lambda: self._get(job))
        state = _state(found)
        details = found.job_detail.task_details
        tasks = {each.task_name: each.state.name for each in details}
        if state not in _ENDED:
            return JobStatus(state, tasks=tasks)
        if state == _SUCCEEDED:
            artifacts = {each.task_name: outputs for each in details if (outputs := _outputs(each))}
            return JobStatus(state, True, tasks=tasks, outputs=artifacts, seconds=_seconds(found))
        wrong = {each.task_name: each.error.message for each in details if each.state.name == "FAILED"}
        todo = f"see the logs of its steps: {self.address(job)}; {RESUMES}"
        error = failed(_short(job), state, found.error.message if found.error else "", wrong, todo)
        return JobStatus(state, True, error, tasks=tasks)

    def cancel(self, job: str) -> None:
        """See `follow.Service`."""
        self._call(lambda: self._client.cancel_pipeline_job(name=job, timeout=_SECONDS))

    def address(self, job: str) -> str:
        """See `follow.Service`."""
        runs = f"https://console.cloud.google.com/vertex-ai/locations/{self._region}/pipelines/runs"
        return f"{runs}/{_short(job)}?project={self._project}"

    def place(self) -> Mapping[str, Any]:
        """See `follow.Service`. The job's name holds project and region."""
        return {}

    def close(self) -> None:
        """See `follow.Service`."""
        self._client.transport.close()

    def _list(self) -> list[PipelineJob]:
        request = {"parent": self._parent, "filter": f"labels.{LABEL}={self._digest}"}
        return list(self._client.list_pipeline_jobs(request=request, timeout=_SECONDS))

    def _get(self, job: str) -> PipelineJob:
        return self._client.get_pipeline_job(name=job, timeout=_SECONDS)

    def _create(self, number: int) -> tuple[bool, str]:
        """Returns False if the job exists already, and its name."""
        from google.api_core.exceptions import AlreadyExists
        from google.cloud.aiplatform_v1.types import PipelineJob
        from google.protobuf import json_format

        fields: dict[str, Any] = json.loads(self._text)
        fields["labels"] = {**fields.get("labels", {}), LABEL: self._digest}
        if self._account:
            fields["serviceAccount"] = self._account
        job = PipelineJob.wrap(json_format.ParseDict(fields, PipelineJob.pb(PipelineJob())))
        name = f"{self._name}-{self._digest}-{number}"
        try:
            created = self._client.create_pipeline_job(
                parent=self._parent, pipeline_job=job, pipeline_job_id=name, timeout=_SECONDS
            )
        except AlreadyExists:
            return False, f"{self._parent}/pipelineJobs/{name}"
        return True, created.name

    def _call(self, request: Callable[[], _Answer]) -> _Answer:
        return call_google(request, self._refused)

    def _refused(self, error: Exception) -> PipelineError:
        return PipelineError(
            f"Vertex AI refuses: {error}",
            expected="an account that may create, list, get and cancel pipeline jobs, and act as "
            f"{self._account or 'the account of the steps'}, in {self._parent}",
            todo="see deploy.project, deploy.region and deploy.service_account, and whether the project has Vertex AI "
            "enabled",
        )


def client_of(region: str) -> PipelineServiceClient:
    """Returns a client with this machine's credentials, after checking them.

    Raises:
        PipelineError: There are none, or they have expired.
        UnavailableError: Google's authentication service cannot be reached.
    """
    with warnings.catch_warnings():
        # google.auth warns that it will no longer support this version of Python, which TFX needs.
        warnings.simplefilter("ignore", FutureWarning)
        import google.auth
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request
        from google.cloud.aiplatform_v1 import PipelineServiceClient

    # It warns of a missing default project, but the project is declared.
    logging.getLogger("google.auth._default").setLevel(logging.ERROR)
    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
        # Without this check, the client would report refused credentials as an unavailable service.
        credentials.refresh(Request())
    except TransportError as error:
        raise UnavailableError(f"Google's authentication service cannot be reached: {first_line(error)}") from error
    except GoogleAuthError as error:
        raise PipelineError(
            f"there are no credentials of Google Cloud: {first_line(error)}",
            expected="valid credentials on this machine",
            todo=f"{LOGIN}; a submitted job keeps running",
        ) from error
    endpoint = {"api_endpoint": f"{region}-aiplatform.googleapis.com"}
    return PipelineServiceClient(credentials=credentials, client_options=endpoint)


def _state(job: PipelineJob) -> str:
    return job.state.name.removeprefix(_PREFIX)


def _outputs(task: PipelineTaskDetail) -> dict[str, dict[str, Any]]:
    """Returns a step's outputs as RuntimeArtifact JSON."""
    from google.cloud.aiplatform_v1.types import Artifact
    from google.protobuf import json_format

    made = {}
    for key, listed in task.outputs.items():
        # Outputs of our components, and of TFX's own, hold one artifact each.
        for artifact in itertools.islice(listed.artifacts, 1):
            metadata = Artifact.pb(artifact).metadata
            made[key] = {
                "name": artifact.name,
                "uri": artifact.uri,
                "type": {"schemaTitle": artifact.schema_title},
                "metadata": json_format.MessageToDict(metadata),
            }
    return made


def _seconds(job: PipelineJob) -> float:
    """Returns the seconds from its creation to its end; 0 if one of them is unknown."""
    if not job.end_time or not job.create_time:
        return 0.0
    return float((job.end_time - job.create_time).total_seconds())


def _short(job: str) -> str:
    return job.rpartition("/")[2]


def _number(job: PipelineJob) -> int:
    last = _short(job.name).rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def call_google(request: Callable[[], _Answer], refused: Callable[[Exception], TfxEstimatorError]) -> _Answer:
    """Calls a Google service, and converts its client's errors; others are bugs, and propagate.

    Args:
        refused: Makes the error of a request that would fail again.

    Raises:
        UnavailableError: The service is temporarily unavailable.
        RefusedError: It does not accept the account; its `final`, as other refusals, is the error of `refused`.
    """
    import grpc
    from google.api_core import exceptions as of
    from google.auth.exceptions import GoogleAuthError, RefreshError

    # Expired credentials, which gRPC reports as an unavailable service; other failed refreshes may succeed later.
    expired = ("invalid_grant", "Reauthentication")
    refusals = (of.BadRequest, of.NotFound, of.MethodNotImplemented)
    try:
        return request()
    except (of.GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError) as error:
        ended = isinstance(error, (RefreshError, of.ServiceUnavailable)) and any(word in str(error) for word in expired)
        if ended or isinstance(error, (of.Unauthorized, of.Forbidden)):
            wrong = refused(error)
            wrong.todo = f"{LOGIN}; a submitted job keeps running" if ended else wrong.todo
            refusal = RefusedError(wrong.what, expected=wrong.expected, todo=wrong.todo)
            refusal.final = wrong
            raise refusal from error
        # Google's library reports invalid credentials by a subclass of ValueError.
        if isinstance(error, (*refusals, TypeError, ValueError)):
            raise refused(error) from error
        raise UnavailableError(first_line(error)) from error
