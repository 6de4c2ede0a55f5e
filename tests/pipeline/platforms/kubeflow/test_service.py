"""Submitting a pipeline to Kubeflow Pipelines over HTTP, to a server that behaves like it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipeline.platforms.kubeflow.kubeflow_service import TOKEN, KubeflowService
from tests.pipeline.platforms.training_jobs.cluster import write_kubeconfig
from tests.pipeline.runners.deployed import COMMON, OF_TARGET, words
from tests.root import ROOT
from tfx_estimator.pipeline.base.ending.signals import SignalledError, handled
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError, TrainingError
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.kubeflow.service import TOKEN_FILE, Kubeflow, connect
from tfx_estimator.pipeline.platforms.note import Note, find_note, leave_note, with_job
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW
from tfx_estimator.pipeline.runners import compiling

DECLARED = (*COMMON, *OF_TARGET[KUBEFLOW])
COMPILED = (ROOT / "tests" / "golden" / "compiled" / f"digits.{KUBEFLOW}.yaml").read_text()


@pytest.fixture(autouse=True)
def hurried(monkeypatch, tmp_path) -> None:
    """Shortens waits and sets the token."""
    for name in ("POLL_SECONDS", "_FIRST_WAIT", "_LONGEST_WAIT"):
        monkeypatch.setattr(follow, name, 0.01)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    monkeypatch.chdir(tmp_path)


def service_of(server: KubeflowService) -> Kubeflow:
    return Kubeflow(server.address, text=COMPILED, name="digits-0123456789", account="trainer")


def test_the_run_equals_the_compiled_file_and_is_not_started_twice():
    with KubeflowService(["RUNNING"]) as server:
        service = service_of(server)
        assert service.start(False) == ("run-1", True, "")
        run, documents = server.runs["run-1"], list(yaml.safe_load_all(COMPILED))
        assert run["service_account"] == "trainer"
        assert run["display_name"] == "digits-0123456789-1"
        assert run["pipeline_spec"] == {"pipeline_spec": documents[0], "platform_spec": documents[1]}
        # The service reads no other field.
        assert run["runtime_config"] == {"pipeline_root": "gs://example-bucket/pipelines/digits/artifacts"}
        assert service.start(False)[:2] == ("run-1", False)
        server.states = ["SUCCEEDED"]
        assert service.start(False)[:2] == ("run-1", False)
        assert service.start(True) == ("run-2", True, "")
        server.states = ["FAILED"]
        assert service.start(False) == ("run-3", True, "")
        assert service.address("run-3") == f"{server.address}/#/runs/details/run-3"


def test_it_is_followed_to_its_end_and_cancelled():
    lines: list[tuple[str, bool]] = []
    with KubeflowService(["RUNNING", "RUNNING", 503, 403, "SUCCEEDED"], explains=True) as server:
        service = service_of(server)
        run = service.start(False).job
        assert follow.follow(service, run, lambda *each: lines.append(each)).state == "SUCCEEDED"
        assert ("the service does not answer: 503 not now; trying again", True) in lines
        assert any(line.endswith(": SUCCEEDED") and "rainer" in line for line, _ in lines)
        server.states = ["RUNNING"]
        service.cancel(run)
        assert server.terminated == [run]
        assert service.status(run).ended
        server.states = ["FAILED"]
        with pytest.raises(TrainingError, match=r"(?si)trainer: exit code 5"):
            follow.follow(service, run, lambda *each: None)


def test_a_gap_in_the_numbers_and_a_run_that_is_ending_are_seen():
    with KubeflowService(["RUNNING"]) as server:
        service = service_of(server)
        assert service.start(False).is_new
        for state in ("CANCELING", "FAILED"):
            server.states = [state]
            assert service.start(False).is_new
        assert server.runs["run-3"]["display_name"] == "digits-0123456789-3"
        # The first runs were deleted; and there is a run of another pipeline.
        del server.runs["run-1"], server.runs["run-2"]
        server.states = ["RUNNING"]
        Kubeflow(server.address, text=COMPILED, name="my-digits-0123456789").start(False)
        assert service.start(False)[:2] == ("run-3", False)
        server.states = ["CANCELING"]
        assert not service.status("run-3").ended


def test_a_run_whose_start_was_interrupted_is_found(monkeypatch):
    with KubeflowService(["RUNNING"]) as server:
        answer = server.answer

        def interrupt(method: str, *about: Any) -> Any:
            response = answer(method, *about)
            if method == "POST":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.5)
            return response

        monkeypatch.setattr(server, "answer", interrupt)
        with pytest.raises(SignalledError), handled():
            service_of(server).start(False)
        assert [*server.runs] == ["run-1"]
        assert service_of(server).start(False)[:2] == ("run-1", False)


@pytest.mark.parametrize(("failing", "kind"), [("Trainer", TrainingError), ("Evaluator", PipelineError)])
def test_the_steps_are_shown_by_their_names(failing, kind):
    with KubeflowService(["RUNNING"], failing=failing) as server:
        run = service_of(server).start(False).job
        for service in (service_of(server), Kubeflow(server.address)):
            assert service.status(run).tasks == {"StatisticsGen": "SUCCEEDED", failing: "RUNNING"}
        server.states = ["FAILED"]
        with pytest.raises(kind, match=rf"the service gives no reason\s+{failing} failed\n") as caught:
            follow.follow(service, run, lambda *each: None)
    assert type(caught.value) is kind


def test_by_way_of_the_kubernetes_api_server(tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_FILE)
    prefix = "/api/v1/namespaces/mine/services/ml-pipeline:http/proxy"
    with KubeflowService(["RUNNING"], prefix) as server:
        hosts = {"a": server.address, "b": "http://localhost:9"}
        write_kubeconfig(tmp_path / "config", "a", TOKEN, **hosts)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        service = Kubeflow(namespace="mine", text=COMPILED, name="digits")
        assert service.start(False).is_new
        assert service.address("run-1").startswith("http://localhost:8080/#/")
        with pytest.raises(PipelineError, match=r"the namespace kubeflow of .* refuses: 404"):
            Kubeflow(text=COMPILED, name="digits").start(False)
        # Its note stays valid after a switch to another context.
        note = with_job(Note(KUBEFLOW, ""), service, "run-1")
        assert (note.context, note.namespace) == ("a", "mine")
        write_kubeconfig(tmp_path / "config", "b", TOKEN, **hosts)
        assert connect(note, "").status("run-1").state == "RUNNING"


def test_a_multi_user_service_requires_an_experiment_and_a_namespace():
    with KubeflowService(["RUNNING"], profile="vision") as server:
        for options in ({}, {"namespace": "vision"}, {"experiment": "mine"}):
            service = Kubeflow(server.address, text=COMPILED, name="digits", **options)
            with pytest.raises(PipelineError, match=r"refuses: 400 .* empty namespace") as caught:
                service.start(False)
            assert "--experiment NAME and --namespace" in caught.value.todo
        other = Kubeflow(server.address, namespace="others", text=COMPILED, experiment="mine")
        with pytest.raises(PipelineError, match=r"refuses: 403 .* in namespace others"):
            other.start(False)
        assert (server.runs, server.experiments) == ({}, {})

        def of(experiment: str) -> Kubeflow:
            whole = {"text": COMPILED, "name": "digits", "experiment": experiment}
            return Kubeflow(server.address, namespace="vision", **whole)

        assert of("mine").start(False) == ("run-1", True, "")
        # The experiment and the run are found, not created again.
        assert of("mine").start(False)[:2] == ("run-1", False)
        assert of("another").start(False) == ("run-2", True, "")
        names = [each["display_name"] for each in server.experiments.values()]
        assert names == ["mine", "another"]
        assert server.runs["run-1"]["experiment_id"] == "experiment-1"
        assert {each["namespace"] for each in server.experiments.values()} == {"vision"}


def test_refusals_are_distinguished_from_lost_connections(tmp_path, monkeypatch):
    with KubeflowService(["RUNNING"]) as server:
        service = service_of(server)
        with pytest.raises(PipelineError, match="refuses: 404 there is no run run-7"):
            service.status("run-7")
        (tmp_path / "token").write_text("another")
        with pytest.raises(PipelineError, match="does not accept the credentials: 401 who are you"):
            service_of(server).start(False)
    with pytest.raises(UnavailableError):
        service.status("run-1")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "nowhere"))
    with pytest.raises(PipelineError, match="nowhere cannot be read"):
        service_of(server)
    with pytest.raises(DeclarationError, match="is no address"):
        Kubeflow("kubeflow.example")


@pytest.mark.parametrize(
    ("login", "message"), [(302, "302, a redirection to .*/dex/auth\n"), (200, "a page of HTML in place of JSON")]
)
def test_a_sign_in_page_is_not_retried_silently(tmp_path, login, message):
    with KubeflowService(["RUNNING"]) as server:
        server.login = login
        service = service_of(server)
        run = service.start(False).job
        (tmp_path / "token").write_text("one-that-has-ended")
        # The known token is still valid.
        assert service.status(run).state == "RUNNING"
        other = service_of(server)
        for ask in (lambda: other.start(False), lambda: other.status(run), lambda: other.cancel(run)):
            with pytest.raises(PipelineError, match=f"does not accept the credentials: {message}") as caught:
                ask()
            assert TOKEN_FILE in caught.value.todo
        # A service that has answered before may be restarting behind its proxy.
        if login == 200:
            service._client = other._client
            with pytest.raises(UnavailableError, match=message):
                service.status(run)
        # A renewed token file is read.
        (tmp_path / "token").write_text(TOKEN)
        assert (other if login == 302 else service_of(server)).status(run).state == "RUNNING"


def test_the_command_line_leaves_the_address(cli, monkeypatch):
    text = compiling.Compiled(COMPILED, (), "", "")
    monkeypatch.setattr(compiling, "compile_declaration", lambda loaded, target: text)
    submit = ["submit", "digits", "--target", KUBEFLOW, *words(*DECLARED), "--yes"]
    with KubeflowService(["RUNNING", "SUCCEEDED"]) as server:
        out = cli(*submit, "--endpoint", server.address).out
        assert "Trainer           8 CPUs, 30 GB    2 nvidia.com/gpu" in out
        assert json.loads(Path("submitted/digits/submission.json").read_text())["address"] in out
        cli("submit", "--attach", "submitted/digits")
    with KubeflowService(["RUNNING"], profile="vision") as server:
        where = ["--endpoint", server.address, "--namespace", "vision", "--experiment", "mine"]
        assert f"{server.address}, experiment mine in vision" in cli(*submit, *where).out
        assert server.runs["run-1"]["experiment_id"] == "experiment-1"
        server.states = ["SUCCEEDED"]
        cli("submit", "--attach", "submitted/digits")


@pytest.mark.parametrize("answer", [403, 503])
def test_a_run_that_cannot_be_followed_is_left_and_followed_again(cli, monkeypatch, answer):
    for name in ("REFUSED_SECONDS", "FOLLOW_SECONDS"):
        monkeypatch.setattr(follow, name, 0.3)
    with KubeflowService(["RUNNING", answer]) as server:
        note = {"job": service_of(server).start(False).job, "endpoint": server.address, "target": KUBEFLOW}
        Path("submission.json").write_text(json.dumps(note))
        err = cli("submit", "--attach", ".", code=9).err
        assert "the job is no longer followed, and may still run: " in err
        assert "follow it again: tfx-estimator submit --attach .\n" in err
        assert server.terminated == []
        server.states = [answer, "SUCCEEDED"]
        cli("submit", "--attach", ".")


def test_a_note_of_an_earlier_release_is_followed(cli):
    with KubeflowService(["RUNNING"]) as server:
        run = service_of(server).start(False).job
        server.states = ["SUCCEEDED"]
        note = {"job": run, "endpoint": server.address, "namespace": None}
        Path("submission.json").write_text(json.dumps({**note, "target": "kubeflow_v2"}))
        assert f"{run}: SUCCEEDED" in cli("submit", "--attach", ".").out


def test_a_note_that_was_left_is_found_as_it_was(tmp_path):
    note = Note(KUBEFLOW, "run-1", endpoint="https://there", experiment="mine")
    assert leave_note(str(tmp_path), note) is None
    assert find_note(str(tmp_path)) == note
    # And it is not taken for that of another job.
    assert leave_note(str(tmp_path), note) is None
