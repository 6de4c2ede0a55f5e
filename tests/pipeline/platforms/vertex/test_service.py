"""Submitting a pipeline to Vertex AI over gRPC, to a server that behaves like it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from google.api_core.exceptions import ServiceUnavailable
from google.auth.exceptions import RefreshError, TransportError
from google.protobuf import json_format

from tests.pipeline.platforms.vertex.pipeline_service import PipelineService
from tests.pipeline.runners.deployed import COMMON, OF_TARGET, words
from tests.root import ROOT
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.errors import PipelineError, TrainingError
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.platforms.vertex import service as vertex
from tfx_estimator.pipeline.runners import compiling

COMPILED = ROOT / "tests" / "golden" / "compiled" / "digits.vertex.json"
RUNNING, SUCCEEDED, FAILED = (f"PIPELINE_STATE_{state}" for state in ("RUNNING", "SUCCEEDED", "FAILED"))
PARENT = "projects/example-project/locations/europe-west4"
CONSOLE = "https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/runs/digits-"
ACCOUNT = "trainer@example-project.iam.gserviceaccount.com"


@pytest.fixture(autouse=True)
def hurried(monkeypatch) -> None:
    for name in ("POLL_SECONDS", "_FIRST_WAIT", "_LONGEST_WAIT"):
        monkeypatch.setattr(follow, name, 0.01)


def service_of(server: PipelineService, digest: str = "0123456789") -> vertex.Vertex:
    return vertex.Vertex(
        server.client(), "example-project", "europe-west4", COMPILED.read_text(), "digits", digest, ACCOUNT
    )


def test_the_job_equals_the_compiled_file():
    with PipelineService([RUNNING]) as server:
        service = service_of(server)
        started = service.start(False)
        (job,) = server.jobs.values()
        service.close()
    compiled = json.loads(COMPILED.read_text())
    assert started == (f"{PARENT}/pipelineJobs/digits-0123456789-1", True, "")
    assert json_format.MessageToDict(type(job).pb(job).pipeline_spec) == compiled["pipelineSpec"]
    assert job.runtime_config.gcs_output_directory == compiled["runtimeConfig"]["gcsOutputDirectory"]
    assert dict(job.runtime_config.parameter_values) == compiled["runtimeConfig"]["parameterValues"]
    assert dict(job.labels) == {**compiled["labels"], vertex.LABEL: "0123456789"}
    assert job.service_account == ACCOUNT


def test_the_same_is_not_started_twice():
    with PipelineService([RUNNING]) as server:
        first = service_of(server).start(False)
        assert service_of(server).start(False) == (first.job, False, "RUNNING")
        server.states = [SUCCEEDED]
        assert service_of(server).start(False) == (first.job, False, "SUCCEEDED")
        assert server.created == 1
        # Unless requested; a running job is never started again.
        assert service_of(server).start(True).job == first.job.removesuffix("1") + "2"
        server.states = [RUNNING]
        assert not service_of(server).start(True).is_new
        # A failed job is started again.
        server.states = [FAILED]
        assert service_of(server).start(False) == (first.job.removesuffix("1") + "3", True, "")
        # Another declaration is another job.
        server.states = [RUNNING]
        assert service_of(server, "9876543210").start(False).is_new


def test_a_lost_response_starts_no_second_job():
    with PipelineService([RUNNING], loses=1) as server:
        service = service_of(server)
        started = follow.with_retries(lambda: service.start(False), lambda line, warns: None, 30)
        assert (started.is_new, server.created) == (False, 1)
    # Two concurrent starts, neither of which sees the other in the list.
    with PipelineService([RUNNING]) as server:
        service = service_of(server)
        service._list = list
        assert service.start(False).is_new
        assert not service.start(False).is_new
        assert server.created == 1


def test_it_is_followed_through_a_lost_connection():
    lines: list[tuple[str, bool]] = []
    with PipelineService(
        [RUNNING, RUNNING, "UNAVAILABLE", "PERMISSION_DENIED", "INTERNAL", RUNNING, SUCCEEDED]
    ) as server:
        service = service_of(server)
        status = follow.follow(service, service.start(False).job, lambda *each: lines.append(each))
    assert (status.state, status.tasks) == ("SUCCEEDED", {"StatisticsGen": "SUCCEEDED", "Trainer": "SUCCEEDED"})
    assert [line for line, warns in lines if warns] == [
        "the service does not answer: 503 the service says UNAVAILABLE; trying again",
        "the service answers again",
    ]
    # Unchanged states are not repeated.
    shown = [line.split("  ")[1] for line, warns in lines if not warns]
    assert shown == [
        "StatisticsGen: SUCCEEDED",
        "Trainer: RUNNING",
        f"{PARENT}/pipelineJobs/digits-0123456789-1: RUNNING",
        "Trainer: SUCCEEDED",
        f"{PARENT}/pipelineJobs/digits-0123456789-1: SUCCEEDED",
    ]


@pytest.mark.parametrize(("step", "kind"), [("Trainer", TrainingError), ("Transform", PipelineError)])
def test_a_failure_is_reported_with_its_own_message(step, kind):
    with PipelineService([RUNNING, FAILED], failing=step) as server:
        service = service_of(server)
        with pytest.raises(kind, match=f"(?s)FAILED: The DAG failed.*{step}: exit code 5: NaN loss") as caught:
            follow.follow(service, service.start(False).job, lambda line, warns: None)
    assert "pipelines/runs/digits-0123456789-1?project=example-project" in caught.value.todo


@pytest.mark.parametrize("answer", ["PERMISSION_DENIED", "UNAVAILABLE"])
def test_a_job_that_cannot_be_followed_is_left_and_followed_again(submit, monkeypatch, answer):
    for name in ("REFUSED_SECONDS", "FOLLOW_SECONDS"):
        monkeypatch.setattr(follow, name, 0.3)
    with PipelineService([RUNNING, answer]) as server:
        code, out, err = submit(server, "--yes", "--follow")
        again, *_ = submit(server, "--attach", "submitted/digits", whole=False)
        # One that refuses at once may have no such job.
        assert (code, again) == (9, 9 if answer == "UNAVAILABLE" else 6)
        assert (server.cancelled, ": RUNNING" in out) == ([], True)
        assert "the job is no longer followed, and may still run: " in err
        assert "follow it again: tfx-estimator submit --attach submitted/digits\n" in err
        server.states = [answer, SUCCEEDED]
        assert submit(server, "--attach", "submitted/digits", whole=False)[0] == 0


def test_a_refused_request_is_distinguished_from_an_unavailable_service():
    with PipelineService(["PERMISSION_DENIED"]) as server:
        service = service_of(server)
        job = service.start(False).job
        with pytest.raises(PipelineError, match="Vertex AI refuses: 403 the service says"):
            service.status(job)
        server.states = ["NOT_FOUND"]
        with pytest.raises(PipelineError, match="404"):
            service.status(job)
    # The server is gone.
    with pytest.raises(UnavailableError):
        service.status(job)
    with pytest.raises(PipelineError, match="has not answered for"):
        follow.with_retries(lambda: service.status(job), lambda line, warns: None, 0.05)


def test_expired_credentials_are_not_retried_silently():
    error = RefreshError("invalid_grant: Token has been expired or revoked.")
    # gRPC turns it into a retryable error.
    unavailable = ServiceUnavailable(f"Getting metadata from plugin failed with error: {error}")
    for each in (error, unavailable, ServiceUnavailable("later")):
        client = SimpleNamespace(get_pipeline_job=Mock(side_effect=each))
        service = vertex.Vertex(client, "example-project", "europe-west4")  # type: ignore[arg-type]
        with pytest.raises(UnavailableError if "later" in str(each) else PipelineError) as caught:
            service.status("digits-1")
        assert "later" in str(each) or "gcloud auth application-default login" in caught.value.todo


def test_a_bug_of_this_project_is_not_taken_for_an_unreachable_service():
    with PipelineService([RUNNING]) as server:
        text = json.dumps({**json.loads(COMPILED.read_text()), "noSuchField": 1})
        service = vertex.Vertex(server.client(), "example-project", "europe-west4", text, "digits", "0123456789")
        with pytest.raises(json_format.ParseError, match="noSuchField"):
            follow.with_retries(lambda: service.start(False), lambda line, warns: None, 0.05)
        broken = SimpleNamespace(get_pipeline_job=Mock(side_effect=KeyError("state")))
        service = vertex.Vertex(broken, "example-project", "europe-west4")  # type: ignore[arg-type]
        with pytest.raises(KeyError, match="state"):
            follow.with_retries(lambda: service.status("digits-1"), lambda line, warns: None, 0.05)


@pytest.fixture
def submit(tmp_path, monkeypatch, capsys):
    """Runs the verb against a server; returns the exit code and the output."""
    monkeypatch.chdir(tmp_path)
    # Compiling has its own tests.
    compiled = compiling.Compiled(COMPILED.read_text(), (), "gs://example-bucket/pipelines/digits/modules", "")
    monkeypatch.setattr(compiling, "compile_declaration", lambda loaded, target: compiled)

    def submit(server: PipelineService | None, *arguments: str, whole: bool = True) -> tuple[int, str, str]:
        if server is not None:
            monkeypatch.setattr(vertex, "client_of", server.client)
        options = ["digits", "--target", VERTEX, *words(*COMMON, *OF_TARGET[VERTEX])] if whole else []
        code = main(["submit", *options, *arguments])
        return code, *capsys.readouterr()

    return submit


def test_it_is_submitted_followed_and_found_again(submit):
    with PipelineService([RUNNING, SUCCEEDED]) as server:
        code, out, _ = submit(server, "--yes", "--follow")
        assert code == 0
        assert "Trainer           8 CPUs, 30 GB" in out
        assert "2 NVIDIA_TESLA_T4" in out
        assert "time     unknown: no finished run in runs/digits" in out
        assert f"address: {CONSOLE}" in out
        note = json.loads(Path("submitted/digits/submission.json").read_text())
        assert note["address"].startswith(CONSOLE)
        assert note["job"] in server.jobs
        assert Path("submitted/digits/pipeline.json").read_text() == COMPILED.read_text()
        code, out, _ = submit(server, "--yes")
        assert (code, server.created) == (0, 1)
        assert "the same job exists, and is not started again" in out
        # Again from the stored note.
        assert submit(server, "--attach", "submitted/digits", "--follow", "--yes", whole=False)[0] == 0
        assert "has ended already: SUCCEEDED" in submit(server, "--cancel", note["job"], whole=False)[1]


def test_missing_credentials_are_reported_before_compiling(submit, monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "compile_declaration", Mock(side_effect=AssertionError("compiled")))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    code, _, err = submit(None, "--yes")
    assert (code, "there are no credentials of Google Cloud" in err) == (6, True)
    assert not Path("submitted").exists()


def test_it_is_cancelled(submit):
    with PipelineService([RUNNING]) as server:
        code, out, _ = submit(server, "--yes")
        assert code == 0
        assert "tfx-estimator submit --cancel submitted/digits" in out
        assert submit(server, "--cancel", "submitted/digits", "--yes", whole=False)[0] == 0
        assert server.cancelled == [*server.jobs]
        code, _, err = submit(server, "--attach", "submitted/digits/submission.json", whole=False)
        assert (code, "ended with CANCELLED" in err) == (6, True)


def test_another_account_is_another_job_and_the_former_one_stays_listed(submit):
    with PipelineService([RUNNING]) as server:
        assert submit(server, "--yes")[0] == 0
        first = json.loads(Path("submitted/digits/submission.json").read_text())["job"]
        another = words("deploy.service_account=another@a.iam.gserviceaccount.com")
        code, out, _ = submit(server, "--yes", *another)
        assert (code, server.created) == (0, 2)
        kept = f"submitted/digits/submission-{first.rpartition('/')[2]}.json"
        assert f"if the former job {first} still runs, cancel it: tfx-estimator submit --cancel {kept}" in out
        assert submit(server, "--cancel", kept, whole=False)[0] == 0
        assert server.cancelled == [first]
        # The same job again is no former one.
        server.states = [RUNNING]
        for _ in range(2):
            assert "of before" not in submit(server, "--yes", *another)[1]
        names = {path.name for path in Path("submitted/digits").glob("*.json")}
        assert names == {"pipeline.json", Path(kept).name, "submission.json"}


def test_a_service_is_retried_even_after_a_slow_first_request(monkeypatch):
    lines: list[str] = []

    def ask() -> str:
        if not lines:
            time.sleep(0.2)
            raise UnavailableError("cut")
        return "there"

    # The first request alone took longer than the deadline.
    assert follow.with_retries(ask, lambda line, warns: lines.append(line), 0.1) == "there"
    assert lines == ["the service does not answer: cut; trying again", "the service answers again"]


def test_a_failed_training_sets_the_exit_code_and_shows_its_address(submit):
    with PipelineService([FAILED]) as server:
        code, _, err = submit(server, "--yes", "--follow")
        (job,) = server.jobs
        named, _, stderr = submit(server, "--attach", job, whole=False)
    assert code == named == 5
    assert "Trainer: exit code 5: NaN loss" in err
    assert "Traceback" not in err
    assert f"    address: {CONSOLE}" in stderr


def test_an_interrupted_watch_says_how_to_resume(submit):
    with PipelineService([RUNNING]) as server:
        server.heard = lambda: os.kill(os.getpid(), signal.SIGINT)
        code, _, err = submit(server, "--yes", "--follow")
        assert (code, server.cancelled) == (130, [])
    assert "continues\n    follow it: tfx-estimator submit --attach submitted/digits\n" in err
    assert "cancel it: tfx-estimator submit --cancel submitted/digits" in err


def test_an_interrupted_start_says_that_the_job_may_run(submit, monkeypatch):
    with PipelineService([RUNNING]) as server:

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

        server.creating = interrupt
        code, out, err = submit(server, "--yes")
        assert (code, server.created, "submitted projects" in out) == (130, 1, False)
        advice = "the same command, unchanged, finds it, and does not start it twice"
        assert f"digits may have been started: {advice}" in err
        assert not os.path.exists("submitted/digits/submission.json")
        server.creating = lambda: None
        code, out, _ = submit(server, "--yes")
        assert (code, server.created) == (0, 1)
        assert "the same job exists, and is not started again" in out
        # Likewise if the started job could not be recorded.
        os.remove("submitted/digits/submission.json")
        os.mkdir("submitted/digits/submission.json")
        code, _, err = submit(server, "--yes")
        assert (code, server.created) == (1, 1)
        assert f"was started, but not recorded: {advice}" in err


def test_a_dry_run_contacts_no_service(submit, monkeypatch):
    monkeypatch.setattr(vertex, "client_of", None)
    code, out, err = submit(None, "--dry-run")
    assert code == 0
    assert out.endswith("nothing was submitted: --dry-run\n")
    # Before any confirmation.
    assert "note: deploy.image: steps have accelerators" in err
    assert not os.path.exists("submitted")


def test_without_a_terminal_the_confirmation_is_an_option(submit, monkeypatch):
    with PipelineService([RUNNING]) as server:
        code, out, err = submit(server)
        assert (code, out, "stdin is not a terminal" in err) == (2, "", True)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        for answer, created in (("n", 0), ("", 0), ("y", 1)):
            monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
            assert submit(server)[0] == 0
            assert server.created == created


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attach", "nowhere"], "no submitted job: No such file"),
        (["--cancel", "digits.yaml"], "no submitted job"),
        (["--attach", "a b", "--target", "vertex"], "to end it: tfx-estimator submit --cancel 'a b'"),
        (["digits", "--cancel", "a"], "do not use SOURCE"),
        (["--cancel", "a", "--dry-run", "--follow", "--yes"], "do not use --dry-run, --follow\n"),
        (["--attach", "a", "--follow", "--set", "name=b", "--runs", "b"], "do not use --set, --runs\n"),
        (["--attach", "a", "--cancel", "a"], "to follow it: tfx-estimator submit --attach a;"),
        (["digits"], "SOURCE or --target is missing"),
        (["digits", "--target", "vertex", "--yes", "--endpoint", "https://a"], "has no --endpoint"),
        (["digits", "--target", "vertex", "--yes"], "the target vertex needs it"),
        (["digits", "--target", "tfjob", "--yes", "--experiment", "b"], "has no --experiment"),
    ],
)
def test_a_wrong_command_is_reported(submit, arguments, message):
    code, _, err = submit(None, *arguments, whole=False)
    assert (code, message in err) == (2, True), err


def test_bad_credentials_are_reported(monkeypatch, tmp_path):
    path = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    for text in (None, "{", '{"type": "service_account"}'):
        if text is not None:
            path.write_text(text)
        with pytest.raises(PipelineError, match="no credentials of Google Cloud"):
            vertex.client_of("europe-west4")
    credentials = SimpleNamespace(refresh=Mock(side_effect=TransportError("no route")))
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials, None))
    with pytest.raises(UnavailableError, match="no route"):
        vertex.client_of("europe-west4")
