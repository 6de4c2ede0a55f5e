"""A submitted TFJob, with recorded responses of a cluster; without one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.platforms.training_jobs.cluster import Cluster, write_kubeconfig
from tests.pipeline.runners.deployed import OF_TFJOB, words
from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.platforms.follow import JobStatus
from tfx_estimator.pipeline.platforms.note import Note, with_job
from tfx_estimator.pipeline.platforms.registry import TFJOB
from tfx_estimator.pipeline.platforms.training_jobs import api, following
from tfx_estimator.pipeline.platforms.training_jobs.service import SUBMISSION, TrainingJobs, connect
from tfx_estimator.pipeline.runners import compiling

COMPILED = (ROOT / "tests" / "golden" / "compiled" / "digits.tfjob.yaml").read_text()
DEADLINE = "Job digits has failed because it was active longer than specified deadline"
BACKOFF = "Job digits has failed because it has reached the specified backoff limit"


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 1.0)
    return Cluster("a")


@pytest.fixture
def jobs(cluster, tmp_path) -> TrainingJobs:
    started = service(cluster, tmp_path)
    assert started.start(False) == ("digits", True, "")
    return started


def service(cluster: Cluster, folder: Path, digest: str = "0123456789", **more: Any) -> TrainingJobs:
    return TrainingJobs(cluster, str(folder), COMPILED, digest, **more)  # type: ignore[arg-type]


def test_a_replaced_job_is_left_alone(cluster, jobs, tmp_path):
    assert jobs.place() == {"context": "a", "namespace": "vision", "kind": "TFJob", "uid": "uid-1"}
    assert service(cluster, tmp_path).start(False)[:2] == ("digits", False)
    cluster.end("Failed")
    assert service(cluster, tmp_path).start(False).is_new
    assert cluster.deleted == ["uid-1"]
    for each in (jobs, service(cluster, tmp_path, uid="uid-1")):
        status = each.status("digits")
        assert (status.ended, status.is_gone, type(status.error)) == (True, True, errors.PipelineError)
        assert "its result is unknown" in str(status.error)
        each.cancel("digits")
    assert cluster.there["metadata"]["uid"] == "uid-2"
    assert not service(cluster, tmp_path, uid="uid-2").status("digits").ended
    service(cluster, tmp_path, uid="uid-2").cancel("digits")
    assert cluster.deleted == ["uid-1", "uid-2"]


def test_suggested_kubectl_commands_name_the_jobs_cluster(cluster, jobs, tmp_path, monkeypatch):
    cluster.context = "arn:of/mine it"
    with pytest.raises(errors.PipelineError) as caught:
        service(cluster, tmp_path, "another").start(False)
    command = "kubectl --context 'arn:of/mine it' {} --namespace vision"
    assert command.format("delete tfjobs digits") in caught.value.todo
    cluster.end("Failed")
    assert jobs.status("digits").error.todo == command.format("describe tfjobs digits")
    monkeypatch.setattr(following, "_DELETED_SECONDS", -1.0)
    with pytest.raises(errors.PipelineError) as caught:
        jobs.start(False)
    assert command.format("get tfjobs,pods") in caught.value.todo
    cluster.context = None
    assert cluster.kubectl("get tfjobs") == "kubectl get tfjobs --namespace vision"


def test_its_config_map_is_deleted_with_it_and_without_one_no_job_is_left(cluster, jobs, tmp_path, monkeypatch):
    service(cluster, tmp_path).start(False)
    assert cluster.owners == [("digits", "uid-1")] * 2

    def refuse(*_: Any) -> None:
        raise errors.PipelineError("the Kubernetes API server refuses", expected="it", todo="ask")

    monkeypatch.setattr(cluster, "add", refuse)
    # An existing job continues with its ConfigMap.
    with pytest.raises(errors.PipelineError):
        service(cluster, tmp_path).start(False)
    assert cluster.deleted == []
    cluster.there = None
    with pytest.raises(errors.PipelineError):
        service(cluster, tmp_path).start(False)
    assert (cluster.there, cluster.made) == (None, 1)


def test_a_vanished_job_is_not_reported_as_failed(cluster, jobs, tmp_path):
    jobs.status("digits")
    cluster.there = None
    for each in (jobs, service(cluster, tmp_path, uid="uid-1")):
        status = each.status("digits")
        assert status.is_gone
        assert "is gone, and its result is unknown" in str(status.error)


def test_an_ended_job_is_replaced_whoever_created_it(cluster, jobs, tmp_path):
    del cluster.there["metadata"]["annotations"][SUBMISSION]
    with pytest.raises(errors.PipelineError, match="not created by `submit`"):
        service(cluster, tmp_path).start(False)
    cluster.end("Succeeded")
    assert service(cluster, tmp_path).start(False).is_new
    assert cluster.deleted == ["uid-1"]


@pytest.mark.parametrize(
    ("code", "kind", "ends_with"),
    [
        (2, errors.DeclarationError, 2),
        (4, errors.UserCodeError, 4),
        (7, errors.NotBlessedError, 7),
        (1, errors.TaskFailedError, 5),
    ],
)
def test_the_chiefs_exit_code_is_the_error(cluster, jobs, code, kind, ends_with):
    cluster.fail(code)
    cluster.end("Failed", "TFJob vision/digits has failed because 1 Chief replica(s) failed.")
    error = jobs.status("digits").error
    assert (type(error), errors.exit_code_of(error)) == (kind, ends_with)
    assert f"ended with exit code {code}; its log ends with:\n    the end of its log" in error.what


def followed(jobs: TrainingJobs, until: Callable[[JobStatus], bool]) -> list[JobStatus]:
    looks: list[JobStatus] = []

    def is_seen() -> bool:
        looks.append(jobs.status("digits"))
        return until(looks[-1])

    wait_until(is_seen, lambda: f"what is looked for; the last look was {looks[-1]}", 20, every=0.05)
    return looks


def test_restarts_between_two_polls_are_reported_and_limited(cluster, jobs):
    limit = cluster.there["spec"]["runPolicy"]["backoffLimit"]
    jobs.status("digits")
    for number in range(limit):
        cluster.restart(137, "worker-0", f"w{number}")
        # The chief fails with it.
        cluster.restart(138, "chief-0", f"c{number}")
        looks = followed(jobs, lambda status: bool(status.notices))
        assert looks[-1].notices == (
            "worker-0 was killed by SIGKILL; its pod, and those that depend on it, were restarted",
        )
        assert not looks[-1].ended
    assert cluster.deleted == []
    cluster.restart(137, "worker-0", "last")
    status = followed(jobs, lambda status: status.ended)[-1]
    assert (status.state, cluster.deleted) == ("Failed", ["uid-1"])
    assert status.error.what.startswith("the TFJob vision/digits was not started again (deploy.tfjob.backoff_limit): ")
    assert "the pod digits-worker-0 was killed by SIGKILL; its log ends with:" in status.error.what
    assert "the operator did not end the TFJob, and it is deleted" in status.error.todo
    jobs.close()


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_restarts_that_the_operator_counts_are_left_to_it(cluster, jobs, policy):
    for each in cluster.there["spec"]["tfReplicaSpecs"].values():
        each["restartPolicy"] = policy
    cluster.there["spec"]["runPolicy"]["backoffLimit"] = 0
    cluster.fail(137, "worker-0")
    assert not jobs.status("digits").ended
    assert not cluster.deleted


@pytest.mark.parametrize("message", [DEADLINE, BACKOFF])
def test_a_recovered_pod_is_not_the_reason(cluster, jobs, message):
    cluster.fail(137, "worker-0")
    assert not jobs.status("digits").ended
    cluster.end("Failed", message)
    error = jobs.status("digits").error
    assert error.what.startswith(f"the TFJob vision/digits failed: TFJobFailed: {message}")
    assert "(see deploy.tfjob.backoff_limit and active_deadline_seconds)" in error.what
    assert "before: the pod digits-worker-0 was killed by SIGKILL" in error.what


def test_the_end_of_the_chiefs_log_is_shown_after_earlier_parts(cluster, jobs, tmp_path):
    def log(*_: Any) -> Iterator[bytes]:
        time.sleep(0.3)
        yield b"2026-11-23T00:00:00Z the end\n"

    cluster.log = log
    # From an earlier attach.
    (earlier := tmp_path / "digits-chief-0.1.log").write_text("the beginning\n")
    os.utime(earlier, (0, 0))
    cluster.fail(143)
    assert jobs.status("digits").lines == ("the beginning",)
    cluster.end("Failed", DEADLINE)
    status = jobs.status("digits")
    assert (type(status.error), status.lines) == (errors.TaskFailedError, ("the end",))


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    write_kubeconfig(tmp_path / "config", "a", a="http://localhost:9", b="http://localhost:10")
    return tmp_path / "config"


def test_a_note_names_its_cluster_even_if_another_becomes_current(config, monkeypatch, cli):
    monkeypatch.setattr(api.Kube, "jobs", lambda self, *_, **__: {"items": []})
    made = connect(Note(TFJOB, ""), "")
    note = with_job(Note(TFJOB, ""), made, "digits")
    assert (note.context, note.namespace) == ("a", "of-a")
    Path("submission.json").write_text(json.dumps({key: value for key, value in vars(note).items() if value}))
    write_kubeconfig(config, "b", a="http://localhost:9", b="http://localhost:10")
    assert "localhost:9" not in (err := cli("submit", "--cancel", ".", code=6).err)
    assert "of-a/digits is gone" in err


def test_the_plan_names_the_cluster_and_the_option_is_in_the_manifests(config, monkeypatch, cli):
    compiled = []

    def compile_declaration(loaded: Any, target: str) -> compiling.Compiled:
        compiled.append(loaded.declaration.deploy)
        return compiling.Compiled(COMPILED, (), "", "")

    monkeypatch.setattr(compiling, "compile_declaration", compile_declaration)
    arguments = ["submit", "digits", "--target", "tfjob", "--dry-run", *words(*OF_TFJOB)]
    for options, service_line in (
        ([], "tfjob, context a, namespace vision"),
        (["--context", "b", "--namespace", "mine"], "tfjob, context b, namespace mine"),
        (["--set", "deploy.tfjob.namespace=null"], "tfjob, context a, namespace of-a"),
    ):
        assert f"service  {service_line}\n" in cli(*arguments, *options).out
    assert [each.tfjob.namespace for each in compiled] == ["vision", "mine", None]
    config.write_text("{")
    for _ in range(2):
        assert "service  tfjob, context (none), namespace vision\n" in cli(*arguments).out
        config.unlink(missing_ok=True)
