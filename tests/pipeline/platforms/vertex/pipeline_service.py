"""The part of Vertex AI's own protocol that runs pipelines, on a port of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import grpc
from google.cloud.aiplatform_v1 import PipelineServiceClient
from google.cloud.aiplatform_v1.services.pipeline_service.transports import PipelineServiceGrpcTransport
from google.cloud.aiplatform_v1.types import PipelineJob, pipeline_service
from google.protobuf import empty_pb2

from tests.grpc_service import FakeService

NOWHERE = "nowhere"


class PipelineService(FakeService):
    """Keeps pipeline jobs as Vertex AI does; the test sets their states.

    Args:
        states: States of a job, one per response; the last one stays. A gRPC code is an error in place of one.
        loses: The number of responses to a creation that are lost.
        heard: Called with each request for a job's state.
        failing: The step that fails if the job does.
        details: A succeeded job's details of its steps; None is two steps without outputs.
        tls: As in `FakeService`.
    """

    def __init__(
        self,
        states: list[str],
        loses: int = 0,
        heard: Callable[[], None] = lambda: None,
        failing: str = "Trainer",
        details: list[Any] | None = None,
        tls: Any = None,
    ) -> None:
        self.creating: Callable[[], None] = lambda: None
        self.states, self.loses, self.heard, self.failing, self.details = list(states), loses, heard, failing, details
        self.jobs: dict[str, Any] = {}
        self.created = 0
        self.cancelled: list[str] = []

        listed = pipeline_service.ListPipelineJobsRequest, pipeline_service.ListPipelineJobsResponse
        methods = {
            "CreatePipelineJob": (self._create, pipeline_service.CreatePipelineJobRequest, PipelineJob),
            "ListPipelineJobs": (self._list, *listed),
            "GetPipelineJob": (self._get, pipeline_service.GetPipelineJobRequest, PipelineJob),
            "CancelPipelineJob": (self._cancel, pipeline_service.CancelPipelineJobRequest, empty_pb2.Empty),
        }
        super().__init__("google.cloud.aiplatform.v1.PipelineService", methods, 2, tls)

    def client(self, region: str = NOWHERE, channel: Any = None) -> Any:
        """Returns Google's own client, over a channel; None makes a new channel."""
        return PipelineServiceClient(transport=PipelineServiceGrpcTransport(channel=channel or self.channel()))

    def _create(self, request: Any, context: Any) -> Any:
        name = f"{request.parent}/pipelineJobs/{request.pipeline_job_id}"
        if not re.fullmatch(r"[a-z][-a-z0-9]{0,127}", request.pipeline_job_id):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "pipeline_job_id")
        if name in self.jobs:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, name)
        self.created += 1
        job = request.pipeline_job
        job.name = name
        self.jobs[name] = job
        self.creating()
        if self.loses:
            self.loses -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        return job

    def _list(self, request: Any, context: Any) -> Any:
        label, _, value = request.filter.removeprefix("labels.").partition("=")
        found = [job for job in self.jobs.values() if job.labels.get(label) == value]
        for job in found:
            self._go_on(job, self.states[0])
        return pipeline_service.ListPipelineJobsResponse(pipeline_jobs=found)

    def _get(self, request: Any, context: Any) -> Any:
        self.heard()
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if hasattr(grpc.StatusCode, state):
            context.abort(grpc.StatusCode[state], f"the service says {state}")
        if request.name not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, request.name)
        return self._go_on(self.jobs[request.name], state)

    def _cancel(self, request: Any, context: Any) -> Any:
        self.cancelled.append(request.name)
        self.states = ["PIPELINE_STATE_CANCELLED"]
        return empty_pb2.Empty()

    def _go_on(self, job: Any, state: str) -> Any:
        job.state = state
        failed = state == "PIPELINE_STATE_FAILED"
        done = {"task_name": "StatisticsGen", "state": "SUCCEEDED"}
        wrong = {"task_name": self.failing, "state": "FAILED", "error": {"code": 9, "message": "exit code 5: NaN loss"}}
        goes_on = {"task_name": self.failing, "state": "SUCCEEDED" if state.endswith("SUCCEEDED") else "RUNNING"}
        job.job_detail = {"task_details": [done, wrong if failed else goes_on]}
        if self.details is not None and state.endswith("SUCCEEDED"):
            job.job_detail = {"task_details": self.details}
            job.create_time, job.end_time = "2026-11-23T00:00:00Z", "2026-11-23T01:02:03Z"
        if failed:
            job.error = {"code": 9, "message": "The DAG failed because some tasks failed."}
        return job
