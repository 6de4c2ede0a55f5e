"""A local fake of the part of Vertex AI that runs custom jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport
from google.cloud.aiplatform_v1.types import CustomJob, job_service
from google.protobuf import empty_pb2

from tests.artifacts import artifact
from tests.grpc_service import FakeService
from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.platforms.vertex.custom_job import STEP_LABEL
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import VertexService


def load_job(*overrides: str) -> Any:
    return load("digits", (*COMMON, *OF_TARGET[VERTEX], *overrides), VERTEX).declaration


def measured() -> Any:
    made = artifact("ModelRun")
    made.set_float_custom_property("last_step", 600.0)
    return made


class Server(FakeService):
    """The used part of Vertex AI's protocol, on a local port.

    Args:
        states: States of the job, one per response; the last one stays.
        loses: Whether the response to its creation is lost.
        heard: Called with each request for the job's state.
        busy: The codes with which the first creation requests are refused.
    """

    def __init__(
        self, states: list[str], loses: bool = False, heard: Any = lambda: None, busy: Sequence[str] = ()
    ) -> None:
        self.states, self.loses, self.busy, self.heard = list(states), loses, list(busy), heard
        self.created: list[Any] = []
        self.cancelled: list[str] = []

        def create(request: Any, context: Any) -> Any:
            if self.busy:
                context.abort(grpc.StatusCode[self.busy.pop(0)], "not now")
            self.created.append(request)
            if self.loses:
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
            return CustomJob(name=f"{request.parent}/customJobs/1", job_spec=request.custom_job.job_spec)

        def find(request: Any, context: Any) -> Any:
            labels = [each.custom_job.labels for each in self.created]
            found = [each for each in labels if f"labels.{STEP_LABEL}={each[STEP_LABEL]}" == request.filter]
            jobs = [CustomJob(name=f"{request.parent}/customJobs/1", state=self.states[0]) for _ in found]
            return job_service.ListCustomJobsResponse(custom_jobs=jobs)

        def get(request: Any, context: Any) -> Any:
            self.heard()
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            if state == "UNAVAILABLE":
                context.abort(grpc.StatusCode.INTERNAL, "not now")
            if state in ("NOT_FOUND", "PERMISSION_DENIED"):
                context.abort(grpc.StatusCode[state], "no")
            return CustomJob(name=request.name, state=state, error={"code": 3, "message": "out of quota"})

        def cancel(request: Any, context: Any) -> Any:
            self.cancelled.append(request.name)
            return empty_pb2.Empty()

        methods = {
            "CreateCustomJob": (create, job_service.CreateCustomJobRequest, CustomJob),
            "ListCustomJobs": (find, job_service.ListCustomJobsRequest, job_service.ListCustomJobsResponse),
            "GetCustomJob": (get, job_service.GetCustomJobRequest, CustomJob),
            "CancelCustomJob": (cancel, job_service.CancelCustomJobRequest, empty_pb2.Empty),
        }
        super().__init__("google.cloud.aiplatform.v1.JobService", methods, workers=1)

    def service(self, project: str, region: str) -> Any:
        client = JobServiceClient(transport=JobServiceGrpcTransport(channel=self.channel()))
        return VertexService(client, project, region)


def hears(server: Server, *then: Any) -> None:
    """Sets the actions of successive job creations; the last one applies to all further ones."""

    def append(created: list[Any], request: Any) -> None:
        list.append(created, request)
        then[min(len(created), len(then)) - 1]()

    server.created = type("Created", (list,), {"append": append})()
