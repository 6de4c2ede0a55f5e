"""The step that creates a custom job of Vertex AI, follows it, and publishes its results."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

import pytest
from tfx.types import standard_artifacts

from tests.artifacts import outputs
from tests.pipeline.platforms.vertex.vertex_ai import Server, hears, load_job, measured
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import (
    NotStartedError,
    StoppedError,
    TrainingError,
    UnfollowedError,
    UserCodeError,
)
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.vertex import call, executor
from tfx_estimator.pipeline.platforms.vertex.custom_job import make_plan
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import VertexService

PARENT = "projects/example-project/locations/europe-west4"


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Executes the step against a server; returns its artifacts."""
    monkeypatch.setattr(executor, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(follow, "_FIRST_WAIT", 0.01)
    plan = make_plan(load_job("deploy.vertex={}"))

    def launch(server: Server) -> dict[str, Any]:
        monkeypatch.setattr(VertexService, "of", server.service)
        properties = {"custom_job": plan.to_json(), "pipeline_home": "gs://bucket/digits", "train_args": "{}"}
        executor.Executor().Do({}, made := outputs(tmp_path), properties)
        return made

    return launch


@pytest.fixture
def folder(tmp_path) -> str:
    """The folder for messages to and from the step."""
    return str(tmp_path / "custom_job")


def test_the_step_creates_the_job_follows_it_and_publishes_the_measurements(launch, folder):
    # The service may be unavailable for a while.
    with Server(["JOB_STATE_PENDING", "UNAVAILABLE", "JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]) as server:

        def measure() -> None:
            _, made, properties = call.read_call(folder)
            assert properties == {"pipeline_home": "gs://bucket/digits", "train_args": "{}"}
            made["model_run"][0].set_float_custom_property("last_step", 600.0)
            made["model"][0].set_string_custom_property("comparable", "{}")
            call.write_measured(folder, made)

        hears(server, measure)
        made = launch(server)
    assert made["model_run"][0].get_float_custom_property("last_step") == 600
    assert made["model"][0].get_string_custom_property("comparable") == "{}"
    assert isinstance(made["model"][0], standard_artifacts.Model)


def test_a_failed_job_is_reported_with_the_services_message(launch):
    with Server(["JOB_STATE_RUNNING", "JOB_STATE_FAILED"]) as server:
        with pytest.raises(NotStartedError, match="JOB_STATE_FAILED: out of quota") as caught:
            launch(server)
        assert caught.value.exit_code == 10
        (request,) = server.created
        assert request.parent == PARENT
        # Another try creates another job.
        with pytest.raises(TrainingError):
            launch(server)
        assert len(server.created) == 2


def test_a_job_that_lost_a_replica_is_followed_by_another(launch, folder):
    def lose() -> None:
        with contextlib.suppress(StoppedError), call.reported(folder, "chief-0"):
            raise StoppedError("it was ended, as a worker has gone")

    def train() -> None:
        server.states = ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
        (made := measured()).set_float_custom_property("first_step", 300.0)
        call.write_measured(folder, {"model_run": [made]})

    with Server(["JOB_STATE_FAILED"]) as server:
        hears(server, lose, lose, train)
        made = launch(server)["model_run"][0]
    assert len(server.created) == 3
    assert made.get_float_custom_property("restarts") == 2
    history = json.loads(made.get_string_custom_property("history"))
    assert [(each["cause"], each["step"]) for each in history] == [("out of quota", 300)] * 2
    with Server(["JOB_STATE_FAILED"]) as server:
        hears(server, lose)
        with pytest.raises(TrainingError, match="JOB_STATE_FAILED: out of quota"):
            launch(server)
    assert len(server.created) == 1 + load_job().trainer.distribution.max_restarts


def test_a_replicas_error_becomes_the_steps(launch, folder):
    def fail() -> None:
        lost = TrainingError("the chief has gone")
        lost.retryable = True
        for replica, error in (("evaluator-0", lost), ("worker-0", UserCodeError("no such layer", todo="mend it"))):
            with contextlib.suppress(type(error)), call.reported(folder, replica):
                raise error

    with Server(["JOB_STATE_FAILED"]) as server:
        hears(server, fail)
        with pytest.raises(UserCodeError, match="no such layer") as ended:
            launch(server)
    assert len(server.created) == 1
    assert ended.value.todo.startswith("mend it; it is the error of a replica of the custom job")


def test_a_retried_step_follows_the_running_job(launch, folder):
    os.mkdir(folder)
    call.write_job(folder, f"{PARENT}/customJobs/7")
    with Server(["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]) as server:
        with pytest.raises(TrainingError, match="its chief wrote nothing"):
            launch(server)
        call.write_measured(folder, {"model_run": [measured()]})
        made = launch(server)
    assert server.created == []
    assert made["model_run"][0].get_float_custom_property("last_step") == 600


@pytest.mark.parametrize("noted", [["JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"], ["UNAVAILABLE", "NOT_FOUND"]])
def test_a_cancelled_or_removed_job_is_awaited_and_recreated(launch, folder, noted):
    os.mkdir(folder)
    call.write_job(folder, f"{PARENT}/customJobs/7")
    with Server([*noted, "JOB_STATE_FAILED"]) as server, pytest.raises(TrainingError, match="JOB_STATE_FAILED"):
        launch(server)
    assert len(server.created) == 1


def test_a_service_that_refuses_for_long_leaves_the_job_for_the_next_try(launch, monkeypatch):
    monkeypatch.setattr(follow, "REFUSED_SECONDS", 0.3)
    with Server(["PERMISSION_DENIED"]) as server:
        with pytest.raises(UnfollowedError, match=r"may still run.*Vertex AI refuses: 403 no") as caught:
            launch(server)
        assert (caught.value.exit_code, server.cancelled) == (9, [])
        server.states = ["JOB_STATE_RUNNING", "JOB_STATE_FAILED"]
        with pytest.raises(TrainingError, match="customJobs/1 ended with JOB_STATE_FAILED"):
            launch(server)
        assert len(server.created) == 1


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "INVALID_ARGUMENT"])
def test_each_refused_creation_is_a_training_error(launch, monkeypatch, code):
    monkeypatch.setattr(follow, "REFUSED_SECONDS", 0.1)
    with Server([], busy=[code] * 1000) as server, pytest.raises(TrainingError, match="Vertex AI refuses") as caught:
        launch(server)
    assert (caught.value.exit_code, server.created) == (5, [])


def test_a_job_whose_creation_response_was_lost_is_found(launch, folder):
    with Server(["JOB_STATE_RUNNING", "JOB_STATE_RUNNING", "JOB_STATE_FAILED"], loses=True) as server:
        with pytest.raises(TrainingError, match="customJobs/1 ended with JOB_STATE_FAILED"):
            launch(server)
        assert len(server.created) == 1
        # From a step that was killed before it recorded the job.
        os.remove(f"{folder}/job.json")
        server.states = ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
        call.write_measured(folder, {"model_run": [measured()]})
        launch(server)
        assert len(server.created) == 1


def test_a_job_that_cannot_be_created_now_is_created_later(launch, folder, monkeypatch):
    busy = ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"]
    with Server(["JOB_STATE_FAILED"], busy=busy) as server:
        with pytest.raises(TrainingError, match="customJobs/1 ended with JOB_STATE_FAILED"):
            launch(server)
        assert (server.busy, len(server.created)) == ([], 1)
    monkeypatch.setattr(executor, "FOLLOW_SECONDS", 0.1)
    with Server(["JOB_STATE_FAILED"], busy=["RESOURCE_EXHAUSTED"] * 1000) as server:
        with pytest.raises(NotStartedError, match="no room for the custom job: 429 not now") as caught:
            launch(server)
        assert (caught.value.exit_code, server.created) == (10, [])
        assert 0 < len(server.busy) < 1000
    assert "quotas" in caught.value.expected


def test_a_terminated_step_cancels_its_job(launch):
    sent: list[int] = []

    def terminate() -> None:
        if not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with Server(["JOB_STATE_RUNNING"], heard=terminate) as server:
        with pytest.raises(SignalledError):
            launch(server)
        assert server.cancelled == [f"{PARENT}/customJobs/1"]
