"""TrainJobs and JobSets through a real API server: created, refused, followed, cancelled, adopted; pods are shells."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest
import yaml

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, RefusedError
from tests.pipeline.platforms.training_jobs.controllers import (
    JOB_SETS,
    RUNTIMES,
    TRAIN_JOBS,
    Controllers,
    check,
    expanded,
)
from tests.pipeline.platforms.training_jobs.operator import TF_JOBS
from tests.pipeline.platforms.training_jobs.test_launcher import LEAVES, launcher, shell, trains
from tests.pipeline.platforms.training_jobs.test_submitted import hurried, source_of  # noqa: F401
from tests.pipeline.runners.deployed import OF_TRAINJOB, words
from tests.waiting import wait_until
from tfx_estimator.components.trainer.cluster import tf_config
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.training_jobs import following
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.kinds import BY_NAME
from tfx_estimator.pipeline.platforms.training_jobs.launcher import Launcher
from tfx_estimator.pipeline.platforms.training_jobs.manifest import job_name, make_manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

KINDS = ("TrainJob", "JobSet")
TF_JOB = pytest.param("TFJob", marks=pytest.mark.long)
# A TrainJob consists of a JobSet: waiting for one shows the behaviour of the other.
WAITING = ("TrainJob", pytest.param("JobSet", marks=pytest.mark.long))
PLACES = {"TrainJob": TRAIN_JOBS, "JobSet": JOB_SETS, "TFJob": TF_JOBS}
SOURCE = source_of("trainjob")
TWO = words("trainer.distribution.train={strategy: multi_worker_mirrored, workers: 2}")


def of_kind(kind: str) -> list[str]:
    return words(f"deploy.trainjob.kind={kind}")


def read(server, kind: str) -> list[dict]:
    return server.ask("GET", PLACES[kind])["items"]


def launched(folder: Path, *more: str, kube: Optional[Kube] = None) -> Launcher:
    return launcher(folder, *more, kube=kube or Kube(kind=BY_NAME["TrainJob"]))


def cluster_of(server, folder: Path, argv: Callable[[str, int], list[str]], **options: float) -> Controllers:
    """Runs TrainJobs and JobSets; a pod's command is made of its task's type and of how often it was started."""
    of_node = lambda role, index, number, _: argv("worker" if index else "chief", number)  # noqa: E731
    return Controllers(server, folder / "pods", of_node, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_accepts_all_fields_and_drops_none(server, kind):
    declared = (*OF_TRAINJOB, f"deploy.trainjob.kind={kind}", f"deploy.trainjob.namespace={NAMESPACE}")
    declaration = load("digits", declared, "trainjob").declaration
    distribution = declaration.trainer.distribution
    made = make_manifests("mine", declaration.deploy, "trainjob", distribution, ["true"], {"name": "config"})
    for each in made:
        path = PLACES.get(each["kind"], RUNTIMES)
        try:
            kept = server.ask("POST", path, each)
            # A misspelled field would be missing.
            assert {**kept["spec"], **each["spec"]} == kept["spec"]
            assert kept["metadata"].items() >= each["metadata"].items()
        finally:
            server.ask("DELETE", f"{path}/{each['metadata']['name']}")
    # A wrong value is refused.
    wrong = json.loads(json.dumps(made[0]).replace('"In"', '"Never"'))
    with pytest.raises(RefusedError, match="Unsupported value"):
        server.ask("POST", PLACES.get(wrong["kind"], RUNTIMES), wrong)


def test_every_pod_finds_its_place_in_tf_config():
    declared = (*OF_TRAINJOB, "deploy.trainjob.kind=JobSet")
    declaration = load("digits", declared, "trainjob").declaration
    (job,) = make_manifests("mine", declaration.deploy, "trainjob", declaration.trainer.distribution, ["true"])
    places = []
    for each in job["spec"]["replicatedJobs"]:
        spec = each["template"]["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        for index in range(spec["completions"]):
            notes = {"annotations": {"batch.kubernetes.io/job-completion-index": str(index)}}
            place = tf_config.read(expanded(container["env"], notes)["TF_CONFIG"])
            places.append((place.task.name, f"mine-{each['name']}-0-{index}.mine:2222"))
            addresses = dict(place.cluster.addresses)
    check(job)
    assert [name for name, _ in places] == ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1", "evaluator-0"]
    by_task = {f"{role}-{index}": each for role, listed in addresses.items() for index, each in enumerate(listed)}
    assert by_task == {name: address for name, address in places if name != "evaluator-0"}


def test_a_lone_chief_has_no_tf_config_and_names_fit():
    declaration = load("digits", OF_TRAINJOB[:4], "trainjob").declaration
    runtime, _ = make_manifests("mine", declaration.deploy, "trainjob", declaration.trainer.distribution, ["true"])
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert "TF_CONFIG" not in {each["name"] for each in container["env"]}
    name = job_name(BY_NAME["TrainJob"], "a" * 60)
    assert len(f"{name}-evaluator-0-0-01234") <= 63


@pytest.mark.parametrize("kind", WAITING)
def test_a_job_is_created_once_followed_found_again_and_cancelled(server, tmp_path, cli, kind):
    done, works = tmp_path / "done", "import os, sys, time\nprint('Trainer at step 100', flush=True)\n"
    works += "while not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
    source = [*SOURCE, *of_kind(kind)]
    with Controllers(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", works, str(done)]) as cluster:
        cli("submit", *source, "--yes")
        (job,) = read(server, kind)
        assert json.loads((tmp_path / "submitted/digits/submission.json").read_text())["kind"] == kind
        # The objects it owns are deleted with it.
        there = server.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps"), server.ask("GET", RUNTIMES)
        owned = [
            each
            for listed in there
            for each in listed["items"]
            if [owner["uid"] for owner in each["metadata"].get("ownerReferences", ())] == [job["metadata"]["uid"]]
        ]
        assert len(owned) == 1 + (kind == "TrainJob")
        err = cli("submit", *source, "--yes", "--set", "trainer.train_steps=7", code=6).err
        assert "another submission of this pipeline is running" in err
        wait_until(lambda: cluster.started, "its pod", every=0.1)
        done.touch()
        out, err = cli("submit", "--attach", "submitted/digits")
        assert "    Trainer at step 100\n" in out
        assert "Traceback" not in err
        assert "the same job exists" in cli("submit", *source, "--yes").out
        assert cluster.started == ["digits-node-0-0"]
        done.unlink()
        cli("submit", *source, "--yes", "--again")
        wait_until(lambda: len(cluster.started) == 2, "its pod", every=0.1)
        cli("submit", "--cancel", "submitted/digits")
        wait_until(lambda: not read(server, kind), f"the {kind}'s end", every=0.1)
    forget(server)


def test_a_cluster_without_the_kind_says_what_to_install(server, tmp_path, monkeypatch, cli):
    kind = BY_NAME["TrainJob"]
    monkeypatch.setitem(BY_NAME, "TrainJob", type(kind)(**{**vars(kind), "version": "v9"}))
    err = cli("submit", *SOURCE, "--yes", code=6).err
    assert "has no TrainJobs" in err
    assert "deploy.trainjob.kind to JobSet" in err


@pytest.mark.parametrize("kind", WAITING)
def test_a_users_error_ends_it_and_a_killed_pod_does_not(server, tmp_path, cli, kind):
    code = "import sys; print('tfx-estimator: the loss is NaN from step 30 on'); sys.exit(5)"

    def argv(role: str, index: int, number: int, command: list[str]) -> list[str]:
        return [sys.executable, "-c", code] if number == 2 else shell("kill -9 $$")

    with Controllers(server, tmp_path / "pods", argv) as cluster:
        err = cli("submit", *SOURCE, *of_kind(kind), "--yes", "--follow", code=5).err
        assert "the loss is NaN from step 30 on" in err
        assert err.count("warning: chief-0 was killed by SIGKILL; its pod") == 2
        assert cluster.started == ["digits-node-0-0"] * 3
    forget(server)


def forget(server) -> None:
    for each in server.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]:
        server.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{each['metadata']['name']}")


def test_a_job_that_is_killed_each_time_ends_at_its_limit(server, tmp_path, cli, monkeypatch):
    # No reason for its end ever arrives.
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 1.0)
    limit = words("trainer.distribution.max_restarts=2")
    with Controllers(server, tmp_path / "pods", lambda *_: shell("echo step 30; kill -9 $$")) as cluster:
        err = cli("submit", *SOURCE, *limit, "--yes", "--follow", code=5).err
        assert "(see deploy.trainjob.backoff_limit and active_deadline_seconds)" in err
        assert "the last pod that had failed before: the pod digits-node-0-0-" in err
        assert len(cluster.started) == 3
    forget(server)


def test_a_training_is_restarted_once_ends_and_is_adopted(server, tmp_path):
    def argv(role: str, number: int) -> list[str]:
        if role == "worker":
            return shell("echo I am here; sleep 2; kill -9 $$" if number == 0 else "exit 0")
        # It loses the worker and continues as if from step 0.
        return trains(tmp_path) if number else shell("sleep 3; exit 138")

    with cluster_of(server, tmp_path, argv) as cluster:
        outcome = launched(tmp_path).run()
        assert (outcome.first_step, outcome.last_step, outcome.extra_steps) == (0, 20, 0)
        assert outcome.metrics == {"accuracy": 0.75}
        assert [restart.cause for restart in outcome.restarts] == ["worker-0 was killed by SIGKILL"]
        assert outcome.examples_per_second
        started = len(cluster.started)
        # As after a driver that was killed before publishing.
        assert launched(tmp_path).run().last_step == 20
        assert len(cluster.started) == started == 4
    logs = [path.read_text() for path in (tmp_path / "training/logs/pods").glob("digits-*.log")]
    # A pod's output is not in the log of another one of the same name.
    assert sorted(map(len, logs))[:2] == [0, 0], logs
    assert len(logs) == 4
    assert any("I am here" in text for text in logs)
    assert any("at step 20" in text for text in logs)


def test_a_training_that_fails_ends_with_its_pods_own_error(server, tmp_path):
    pods = {"chief": shell("exec sleep 60"), "worker": shell(f"{LEAVES}; exit 4")}
    with cluster_of(server, tmp_path, lambda role, _: pods[role]):
        with pytest.raises(errors.UserCodeError, match="your loss is no number") as caught:
            launched(tmp_path).run()
        assert caught.value.exit_code == 4
        assert "the log of the pod digits-" in caught.value.todo


def test_possible_causes_of_its_end_are_named(server, tmp_path, monkeypatch):
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 1.0)
    fails = pytest.raises(errors.TaskFailedError, match=r"deploy\.trainjob\.backoff_limit and active_deadline_seconds")
    with Controllers(server, tmp_path / "pods", lambda *_: shell("exec sleep 60")), fails:
        launched(tmp_path, "deploy.trainjob.active_deadline_seconds=1").run()


def test_time_in_a_queue_does_not_count_as_start_time(server, tmp_path):
    pods = {"chief": trains(tmp_path), "worker": shell("true")}
    with cluster_of(server, tmp_path, lambda role, _: pods[role], queue_seconds=6.0) as cluster:
        run = launched(tmp_path, "deploy.trainjob.pending_timeout=3")
        assert run.run().last_step == 20
        assert len(cluster.started) == 2
        (job,) = read(server, "TrainJob")
        assert job["metadata"]["labels"] == {"tfx-estimator/pipeline": "digits"}


def test_a_train_job_whose_runtime_is_not_visible_yet_is_retried(server, tmp_path, monkeypatch):
    message = 'admission webhook "v" denied: specified trainingRuntime must be created before the TrainJob is created'
    kube, ask, denied = Kube(kind=BY_NAME["TrainJob"]), Kube._ask, []

    def asks(self, method: str, path: str, *given, **more):
        if method == "POST" and path.endswith("/trainjobs") and len(denied) < 2:
            denied.append(path)
            body = json.dumps({"message": message})
            raise self._error_of(SimpleNamespace(status=403, body=body, reason=""), "POST")
        return ask(self, method, path, *given, **more)

    monkeypatch.setattr(Kube, "_ask", asks)
    pods = {"chief": trains(tmp_path), "worker": shell("true")}
    with cluster_of(server, tmp_path, lambda role, _: pods[role]):
        assert launched(tmp_path, kube=kube).run().last_step == 20
    assert len(denied) == 2
    body = '{"message": "admission webhook \\"q\\" denied"}'
    refused = kube._error_of(SimpleNamespace(status=403, body=body, reason=""), "POST")
    assert "refuses the TrainJob" in str(refused)


def test_a_signal_deletes_it(server, tmp_path, caplog):
    stops = shell(f"trap 'touch {tmp_path}/asked; exit 143' TERM; while :; do sleep 0.1; done")
    with cluster_of(server, tmp_path, lambda *_: stops) as cluster:

        def end() -> None:
            try:
                wait_until(lambda: len(cluster.started) == 2, "two pods", every=0.1)
                time.sleep(1)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        with futures.ThreadPoolExecutor(1) as beside:
            ending = beside.submit(end)
            with pytest.raises(errors.StoppedError, match="is deleted; no checkpoint was written yet") as caught:
                launched(tmp_path).run()
            ending.result()
        assert caught.value.exit_code == 143
        assert not [read(server, each) for each in PLACES if read(server, each)]
    assert (tmp_path / "asked").exists()
    assert "restarted" not in caplog.text


def test_the_printed_kubectl_commands_match_the_compiled_objects(tmp_path, cli):
    path = tmp_path / "out.yaml"
    stdout = cli("compile", *SOURCE, *TWO, "--output", str(path)).out
    kinds = [each["kind"] for each in yaml.safe_load_all(path.read_text())]
    assert kinds == ["ConfigMap", "TrainingRuntime", "TrainJob"]
    for each in ("delete trainjobs digits", "delete configmaps", "delete trainingruntimes --selector"):
        assert each in stdout
    assert "logs --follow --tail=-1 --selector jobset.sigs.k8s.io/jobset-name=digits" in stdout
