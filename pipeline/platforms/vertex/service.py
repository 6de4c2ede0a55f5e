"""Vertex AI Pipelines: a pipeline job, by Google's own client."""

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
from tfx_estimator.pipeline.platforms.follow import GOES_ON, Look, LostError, Started, failed
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

_Told = TypeVar("_Told")


def place_of(deploy: DeploySection, target: str, **_: Optional[str]) -> Note:
    """Returns a note of where a declaration is submitted to, without a job yet; nobody is asked."""
    return Note(target, "", project=deploy.project, region=deploy.region)


def where(note: Note) -> str:
    """Returns the place in words."""
    return f"project {note.project}, region {note.region}"


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> Vertex:
    """Connects to the service of a note; as `kubeflow.service.connect`."""
    region = note.region or ""
    return Vertex(client_of(region), note.project or "", region, text, name, digest, account)


class Vertex:
    """See `follow.Service`.

    Args:
        text: What was compiled; empty where a job is only followed, as the next two.
        account: That the steps run as; None is the project's default.
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
        """See `follow.Service`. That a job has a name of its contents keeps a second one from being created."""
        listed = self._ask(self._list)
        for number in itertools.count(1 + max((_number(job) for job in listed), default=0)):
            for job in sorted(listed, key=_number, reverse=True):
                state = _state(job)
                if state not in _OVER and not (again and state == _SUCCEEDED):
                    return Started(job.name, False, state)
            created, name = self._ask(partial(self._create, number))
            if created:
                return Started(name, True)
            # The job exists already: somebody else has just created it, or an earlier try whose answer was lost.
            listed = [self._ask(partial(self._get, name))]
        raise AssertionError

    def look(self, job: str) -> Look:
        """See `follow.Service`."""
        found = self._ask(lambda: self._get(job))
        state = _state(found)
        details = found.job_detail.task_details
        tasks = {each.task_name: each.state.name for each in details}
        if state not in _ENDED:
            return Look(state, tasks=tasks)
        if state == _SUCCEEDED:
            made = {each.task_name: outputs for each in details if (outputs := _outputs(each))}
            return Look(state, True, tasks=tasks, outputs=made, seconds=_seconds(found))
        wrong = {each.task_name: each.error.message for each in details if each.state.name == "FAILED"}
        todo = f"see the logs of its steps: {self.address(job)}; {GOES_ON}"
        error = failed(_short(job), state, found.error.message if found.error else "", wrong, todo)
        return Look(state, True, error, tasks=tasks)

    def cancel(self, job: str) -> None:
        """See `follow.Service`."""
        self._ask(lambda: self._client.cancel_pipeline_job(name=job, timeout=_SECONDS))

    def address(self, job: str) -> str:
        """See `follow.Service`."""
        runs = f"https://console.cloud.google.com/vertex-ai/locations/{self._region}/pipelines/runs"
        return f"{runs}/{_short(job)}?project={self._project}"

    def place(self) -> Mapping[str, Any]:
        """See `follow.Service`. A job's name says it."""
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
        """Returns whether it was not there yet, and its name."""
        from google.api_core.exceptions import AlreadyExists
        from google.cloud.aiplatform_v1.types import PipelineJob
        from google.protobuf import json_format

        told: dict[str, Any] = json.loads(self._text)
        told["labels"] = {**told.get("labels", {}), LABEL: self._digest}
        if self._account:
            told["serviceAccount"] = self._account
        job = PipelineJob.wrap(json_format.ParseDict(told, PipelineJob.pb(PipelineJob())))
        name = f"{self._name}-{self._digest}-{number}"
        try:
            created = self._client.create_pipeline_job(
                parent=self._parent, pipeline_job=job, pipeline_job_id=name, timeout=_SECONDS
            )
        except AlreadyExists:
            return False, f"{self._parent}/pipelineJobs/{name}"
        return True, created.name

    def _ask(self, ask: Callable[[], _Told]) -> _Told:
        return asked(ask, self._refused)

    def _refused(self, error: Exception) -> PipelineError:
        return PipelineError(
            f"Vertex AI refuses: {error}",
            expected="an account that may create, list, get and cancel pipeline jobs, and act as "
            f"{self._account or 'the account of the steps'}, in {self._parent}",
            todo="see deploy.project, deploy.region and deploy.service_account, and whether the project has Vertex AI "
            "enabled",
        )


def client_of(region: str) -> PipelineServiceClient:
    """Returns a client with this machine's credentials, which were tried.

    Raises:
        PipelineError: There are none, or they have ended.
    """
    with warnings.catch_warnings():
        # google.auth warns of the end of its support for this version of Python, which TFX needs.
        warnings.simplefilter("ignore", FutureWarning)
        import google.auth
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request
        from google.cloud.aiplatform_v1 import PipelineServiceClient

    # The project is declared.
    logging.getLogger("google.auth._default").setLevel(logging.ERROR)
    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
        # The client would take its refusal for a service that does not answer.
        credentials.refresh(Request())
    except TransportError as error:
        raise PipelineError(
            f"Google's accounts cannot be asked: {first_line(error)}",
            expected="a network that reaches them",
            todo="see whether this machine has one; then run the same again",
        ) from error
    except GoogleAuthError as error:
        raise PipelineError(
            f"there are no credentials of Google Cloud: {first_line(error)}",
            expected="an account that this machine knows, and that is valid",
            todo=f"{LOGIN}; a job that was submitted goes on",
        ) from error
    endpoint = {"api_endpoint": f"{region}-aiplatform.googleapis.com"}
    return PipelineServiceClient(credentials=credentials, client_options=endpoint)


def _state(job: PipelineJob) -> str:
    return job.state.name.removeprefix(_PREFIX)


def _outputs(task: PipelineTaskDetail) -> dict[str, dict[str, Any]]:
    """What a step has made, as a RuntimeArtifact's JSON."""
    from google.cloud.aiplatform_v1.types import Artifact
    from google.protobuf import json_format

    made = {}
    for key, listed in task.outputs.items():
        # All of ours, and of TFX's own, are one artifact each.
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
    """From its creation to its end, as far as they are told."""
    if not job.end_time or not job.create_time:
        return 0.0
    return float((job.end_time - job.create_time).total_seconds())


def _short(job: str) -> str:
    return job.rpartition("/")[2]


def _number(job: PipelineJob) -> int:
    last = _short(job.name).rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def asked(ask: Callable[[], _Told], refused: Callable[[Exception], TfxEstimatorError]) -> _Told:
    """Asks a service of Google's; what is no error of its client's is a mistake of ours, which no wait mends.

    Args:
        refused: Makes the error of a service that would say the same once more.

    Raises:
        LostError: The service did not answer, or not for now.
    """
    import grpc
    from google.api_core import exceptions as of
    from google.auth.exceptions import GoogleAuthError, RefreshError

    # Credentials that have ended, which gRPC takes for a service that does not answer; others may be refreshed later.
    ended = ("invalid_grant", "Reauthentication")
    refusals = (of.BadRequest, of.Unauthorized, of.Forbidden, of.NotFound, of.MethodNotImplemented)
    try:
        return ask()
    except (of.GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError) as error:
        if isinstance(error, (RefreshError, of.ServiceUnavailable)) and any(word in str(error) for word in ended):
            wrong = refused(error)
            wrong.todo = f"{LOGIN}; a job that was submitted goes on"
            raise wrong from error
        # Google's library reports invalid credentials by a subclass of ValueError.
        if isinstance(error, (*refusals, TypeError, ValueError)):
            raise refused(error) from error
        raise LostError(first_line(error)) from error
