"""A pipeline that is submitted to Kubeflow Pipelines: over HTTP, to a server that keeps runs as it does."""

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
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.ending.signals import SignalledError, handled
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError, TrainingError
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.follow import LostError
from tfx_estimator.pipeline.platforms.kubeflow.service import TOKEN_FILE, Kubeflow, connect
from tfx_estimator.pipeline.platforms.note import Note, with_job
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, KUBEFLOW_V2
from tfx_estimator.pipeline.runners import compiling

pytestmark = pytest.mark.unit

# Words of the two versions.
RUNNING = {KUBEFLOW: "Running", KUBEFLOW_V2: "RUNNING"}
SUCCEEDED = {KUBEFLOW: "Succeeded", KUBEFLOW_V2: "SUCCEEDED"}
FAILED = {KUBEFLOW: "Failed", KUBEFLOW_V2: "FAILED"}
DECLARED = (*COMMON, *OF_TARGET[KUBEFLOW_V2])
both = pytest.mark.parametrize("target", [KUBEFLOW, KUBEFLOW_V2])


@pytest.fixture(autouse=True)
def hurried(monkeypatch, tmp_path, every_target) -> None:
    """Waits are short; the token is known."""
    for name in ("POLL_SECONDS", "_FIRST_WAIT", "_LONGEST_WAIT"):
        monkeypatch.setattr(follow, name, 0.01)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    monkeypatch.chdir(tmp_path)


def compiled(target: str) -> str:
    return (ROOT / "tests" / "golden" / "compiled" / f"digits.{target}.yaml").read_text()


def service_of(server: KubeflowService, target: str) -> Kubeflow:
    return Kubeflow(target, server.address, text=compiled(target), name="digits-0123456789", account="trainer")


@both
def test_the_run_is_what_was_compiled_and_not_started_twice(target):
    with KubeflowService([RUNNING[target]]) as server:
        service = service_of(server, target)
        assert service.start(False) == ("run-1", True, "")
        run, documents = server.runs["run-1"], list(yaml.safe_load_all(compiled(target)))
        assert run["service_account"] == "trainer"
        if target == KUBEFLOW:
            assert run["name"] == "digits-0123456789-1"
            assert json.loads(run["pipeline_spec"]["workflow_manifest"]) == documents[0]
        else:
            assert run["display_name"] == "digits-0123456789-1"
            assert run["pipeline_spec"] == {"pipeline_spec": documents[0], "platform_spec": documents[1]}
            # The service looks at no other.
            assert run["runtime_config"] == {"pipeline_root": "gs://example-bucket/pipelines/digits/artifacts"}
        assert service.start(False)[:2] == ("run-1", False)
        server.states = [SUCCEEDED[target]]
        assert service.start(False)[:2] == ("run-1", False)
        assert service.start(True) == ("run-2", True, "")
        server.states = [FAILED[target]]
        assert service.start(False) == ("run-3", True, "")
        assert service.address("run-3") == f"{server.address}/#/runs/details/run-3"


@both
def test_it_is_followed_to_its_end_and_cancelled(target):
    said: list[tuple[str, bool]] = []
    with KubeflowService([RUNNING[target], RUNNING[target], 503, SUCCEEDED[target]], explains=True) as server:
        service = service_of(server, target)
        run = service.start(False).job
        assert follow.follow(service, run, lambda *each: said.append(each)).state == SUCCEEDED[target]
        assert ("the service does not answer: 503 not now; trying again", True) in said
        assert any(line.endswith(f": {SUCCEEDED[target]}") and "rainer" in line for line, _ in said)
        server.states = [RUNNING[target]]
        service.cancel(run)
        assert server.terminated == [run]
        assert service.look(run).ended
        server.states = [FAILED[target]]
        with pytest.raises(TrainingError, match=r"(?si)trainer: exit code 5"):
            follow.follow(service, run, lambda *each: None)


@both
def test_a_gap_in_the_numbers_and_a_run_that_is_ending_are_seen(target):
    with KubeflowService([RUNNING[target]]) as server:
        service = service_of(server, target)
        assert service.start(False).is_new
        for state in ("Terminating" if target == KUBEFLOW else "CANCELING", FAILED[target]):
            server.states = [state]
            assert service.start(False).is_new
        assert server.runs["run-3"]["name" if target == KUBEFLOW else "display_name"] == "digits-0123456789-3"
        # Somebody has deleted the first ones; there is one of another pipeline, too.
        del server.runs["run-1"], server.runs["run-2"]
        server.states = [RUNNING[target]]
        Kubeflow(target, server.address, text=compiled(target), name="my-digits-0123456789").start(False)
        assert service.start(False)[:2] == ("run-3", False)
        server.states = ["Terminating" if target == KUBEFLOW else "CANCELING"]
        assert not service.look("run-3").ended


@both
def test_a_run_whose_start_was_interrupted_is_found(target, monkeypatch):
    with KubeflowService([RUNNING[target]]) as server:
        answer = server.answer

        def interrupt(method: str, *about: Any) -> Any:
            told = answer(method, *about)
            if method == "POST":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.5)
            return told

        monkeypatch.setattr(server, "answer", interrupt)
        with pytest.raises(SignalledError), handled():
            service_of(server, target).start(False)
        assert [*server.runs] == ["run-1"]
        assert service_of(server, target).start(False)[:2] == ("run-1", False)


@pytest.mark.parametrize(("failing", "kind"), [("Trainer", TrainingError), ("Evaluator", PipelineError)])
def test_the_steps_of_version_2_are_told_by_their_names(failing, kind):
    with KubeflowService(["RUNNING"], failing=failing) as server:
        run = service_of(server, KUBEFLOW_V2).start(False).job
        for service in (service_of(server, KUBEFLOW_V2), Kubeflow(KUBEFLOW_V2, server.address)):
            assert service.look(run).tasks == {"StatisticsGen": "SUCCEEDED", failing: "RUNNING"}
        server.states = ["FAILED"]
        with pytest.raises(kind, match=rf"the service says no more\s+{failing} failed\n") as caught:
            follow.follow(service, run, lambda *each: None)
    assert type(caught.value) is kind


def test_a_try_that_failed_does_not_count_where_another_succeeded():
    def tries(name: str, *phases: str) -> dict[str, dict[str, str]]:
        told = [{"type": "Pod", "displayName": f"{name}({number})"} for number in range(len(phases))]
        return {
            f"{name}-{number}": {**each, "phase": phase, "message": f"of try {number}"}
            for number, (each, phase) in enumerate(zip(told, phases))
        }

    with KubeflowService(["Failed"]) as server:
        # A map of Argo's has no order.
        pushed = dict(reversed(tries("pusher", "Failed", "Error").items()))
        server.nodes = {**tries("trainer", "Failed", "Succeeded"), **pushed}
        service = service_of(server, KUBEFLOW)
        look = service.look(service.start(False).job)
    assert type(look.error) is PipelineError
    assert look.error.what.endswith("\npusher: of try 1")
    assert look.tasks["trainer(0)"] == "Failed"


@both
def test_by_way_of_the_kubernetes_api_server(target, tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_FILE)
    prefix = "/api/v1/namespaces/mine/services/ml-pipeline:http/proxy"
    with KubeflowService([RUNNING[target]], prefix) as server:
        hosts = {"a": server.address, "b": "http://localhost:9"}
        write_kubeconfig(tmp_path / "config", "a", TOKEN, **hosts)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        service = Kubeflow(target, namespace="mine", text=compiled(target), name="digits")
        assert service.start(False).is_new
        assert service.address("run-1").startswith("http://localhost:8080/#/")
        with pytest.raises(PipelineError, match=r"the namespace kubeflow of .* refuses: 404"):
            Kubeflow(target, text=compiled(target), name="digits").start(False)
        # Its note holds when another context has become the current one.
        note = with_job(Note(target, ""), service, "run-1")
        assert (note.context, note.namespace) == ("a", "mine")
        write_kubeconfig(tmp_path / "config", "b", TOKEN, **hosts)
        assert connect(note, "").look("run-1").state == RUNNING[target]


@both
def test_a_service_with_several_users_takes_runs_of_an_experiment_alone(target):
    with KubeflowService([RUNNING[target]], profile="vision") as server:
        for told in ({}, {"namespace": "vision"}, {"experiment": "mine"}):
            service = Kubeflow(target, server.address, text=compiled(target), name="digits", **told)
            with pytest.raises(PipelineError, match=r"refuses: 400 .* empty namespace") as caught:
                service.start(False)
            assert "--experiment NAME and --namespace" in caught.value.todo
        other = Kubeflow(target, server.address, namespace="others", text=compiled(target), experiment="mine")
        with pytest.raises(PipelineError, match=r"refuses: 403 .* in namespace others"):
            other.start(False)
        assert (server.runs, server.experiments) == ({}, {})

        def of(experiment: str) -> Kubeflow:
            whole = {"text": compiled(target), "name": "digits", "experiment": experiment}
            return Kubeflow(target, server.address, namespace="vision", **whole)

        assert of("mine").start(False) == ("run-1", True, "")
        # Found, and not made once more; so is the run.
        assert of("mine").start(False)[:2] == ("run-1", False)
        assert of("another").start(False) == ("run-2", True, "")
        names = [each["name" if target == KUBEFLOW else "display_name"] for each in server.experiments.values()]
        assert names == ["mine", "another"]
        if target == KUBEFLOW:
            key = {"type": "EXPERIMENT", "id": "experiment-1"}
            assert server.runs["run-1"]["resource_references"] == [{"key": key, "relationship": "OWNER"}]
        else:
            assert server.runs["run-1"]["experiment_id"] == "experiment-1"
        assert {each["namespace"] for each in server.experiments.values()} == {"vision"}


def test_what_is_refused_is_told_from_what_is_lost(tmp_path, monkeypatch):
    with KubeflowService(["RUNNING"]) as server:
        service = service_of(server, KUBEFLOW_V2)
        with pytest.raises(PipelineError, match="refuses: 404 there is no run run-7"):
            service.look("run-7")
        (tmp_path / "token").write_text("another")
        with pytest.raises(PipelineError, match="does not know who asks: 401 who are you"):
            service_of(server, KUBEFLOW_V2).start(False)
    with pytest.raises(LostError):
        service.look("run-1")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "nowhere"))
    with pytest.raises(PipelineError, match="nowhere cannot be read"):
        service_of(server, KUBEFLOW_V2)
    with pytest.raises(DeclarationError, match="is no address"):
        Kubeflow(KUBEFLOW_V2, "kubeflow.example")


@pytest.mark.parametrize(
    ("login", "said"), [(302, "302, a redirection to .*/dex/auth\n"), (200, "a page of HTML in place of JSON")]
)
def test_a_page_to_sign_in_is_no_silence(tmp_path, login, said):
    with KubeflowService(["RUNNING"]) as server:
        server.login = login
        service = service_of(server, KUBEFLOW_V2)
        run = service.start(False).job
        (tmp_path / "token").write_text("one-that-has-ended")
        # The one that it knows is still good.
        assert service.look(run).state == "RUNNING"
        other = service_of(server, KUBEFLOW_V2)
        for ask in (lambda: other.start(False), lambda: other.look(run), lambda: other.cancel(run)):
            with pytest.raises(PipelineError, match=f"does not know who asks: {said}") as caught:
                ask()
            assert TOKEN_FILE in caught.value.todo
        # The service that has answered may be one that restarts behind its proxy.
        if login == 200:
            service._client = other._client
            with pytest.raises(LostError, match=said):
                service.look(run)
        # A token that was written anew is found.
        (tmp_path / "token").write_text(TOKEN)
        assert (other if login == 302 else service_of(server, KUBEFLOW_V2)).look(run).state == "RUNNING"


def test_the_command_line_leaves_the_address(capsys, monkeypatch):
    text = compiling.Compiled(compiled(KUBEFLOW_V2), (), "", "")
    monkeypatch.setattr(compiling, "compile_declaration", lambda loaded, target: text)
    submit = ["submit", "digits", "--target", KUBEFLOW_V2, *words(*DECLARED), "--yes"]
    with KubeflowService(["RUNNING", "SUCCEEDED"]) as server:
        assert main([*submit, "--endpoint", server.address]) == 0
        out = capsys.readouterr().out
        assert "Trainer           8 CPUs, 30 GB    2 nvidia.com/gpu" in out
        assert json.loads(Path("submitted/digits/submission.json").read_text())["address"] in out
        assert main(["submit", "--attach", "submitted/digits"]) == 0
    with KubeflowService(["RUNNING"], profile="vision") as server:
        where = ["--endpoint", server.address, "--namespace", "vision", "--experiment", "mine"]
        assert main([*submit, *where]) == 0
        assert f"{server.address}, experiment mine in vision" in capsys.readouterr().out
        assert server.runs["run-1"]["experiment_id"] == "experiment-1"
        server.states = ["SUCCEEDED"]
        assert main(["submit", "--attach", "submitted/digits"]) == 0
