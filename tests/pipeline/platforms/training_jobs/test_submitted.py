"""A compiled TFJob, submitted or applied with kubectl through a real API server; the pods are shells."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest
import yaml

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, RefusedError
from tests.pipeline.platforms.training_jobs.operator import Operator
from tests.pipeline.platforms.training_jobs.proxy import Proxy, Restarting, between
from tests.pipeline.runners.deployed import IMAGE, words
from tests.waiting import wait_until
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.training_jobs import following
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.compile import PIPELINE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def source_of(target: str) -> list[str]:
    """Returns the words that name digits on a target, in the server's namespace."""
    places = ("deploy.pipeline_root=/mnt/work/runs", "deploy.volumes=[{claim: work, path: /mnt/work}]")
    declared = (f"deploy.image={IMAGE}", *places, f"deploy.{target}.namespace={NAMESPACE}")
    return ["digits", "--target", target, *words(*declared)]


SOURCE = source_of("tfjob")
# A chief that runs until it is released.
WORKS = """
import os, sys, time
print("Trainer at step 100", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def hurried(monkeypatch, tmp_path) -> None:
    """Shortens waits, and uses the test's own folder."""
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(follow, "_FIRST_WAIT", 0.1)
    monkeypatch.chdir(tmp_path)


def test_it_is_created_once_followed_through_a_cut_connection_and_restarted(server, tmp_path, monkeypatch, cli):
    done = tmp_path / "done"
    with (
        between(server, Proxy, tmp_path, monkeypatch) as proxy,
        Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, str(done)]) as operator,
    ):
        out = cli("submit", *SOURCE, "--yes").out
        assert f"address: {proxy.address}/apis/kubeflow.org/v1/namespaces/default/tfjobs/digits" in out
        ours = config_map_of(server)["metadata"]
        job = Kube().read("digits")
        assert [each["uid"] for each in ours["ownerReferences"]] == [job["metadata"]["uid"]]
        # Another declaration of this name is not started next to it.
        err = cli("submit", *SOURCE, "--yes", "--set", "trainer.train_steps=7", code=6).err
        assert "another submission of this pipeline is running" in err

        def interfere() -> None:
            time.sleep(1.5)
            proxy.cut()
            time.sleep(1.0)
            done.touch()

        thread = threading.Thread(target=interfere)
        thread.start()
        out, err = cli("submit", *SOURCE, "--yes", "--follow")
        thread.join()
        assert "the same job exists" in out
        assert "    Trainer at step 100\n" in out
        assert out.endswith("digits: Succeeded\n")
        assert "Traceback" not in err
        cli("submit", *SOURCE, "--yes")
        assert operator.started == ["digits-chief-0"]
        cli("submit", *SOURCE, "--yes", "--again", "--follow")
        assert operator.started == ["digits-chief-0"] * 2
        # A garbage collector, which is missing here, would keep objects with an owner.
        owned = server.ask("GET", f"{CONFIG_MAPS}/{ours['name']}")
        again = Kube().read("digits")
        assert [each["uid"] for each in owned["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]


def test_a_restarted_server_is_waited_for_and_one_that_refuses_for_long_leaves_the_job(
    server, tmp_path, monkeypatch, cli
):
    monkeypatch.setattr(follow, "REFUSED_SECONDS", 1.5)
    done = tmp_path / "done"
    restart, refusal = ((403, 0.7), (503, 0.7)), ((403, math.inf),)
    shell = [sys.executable, "-c", WORKS, str(done)]
    operator = Operator(server, tmp_path / "pods", lambda *_: shell)
    with between(server, Restarting, tmp_path, monkeypatch) as front, operator:
        # It is restarting when the job is submitted, and refuses for long while it is followed.
        front.begin(*restart)

        def refuse() -> None:
            wait_until(lambda: operator.started, "the chief's pod", every=0.1)
            time.sleep(1.5)
            front.begin(*refusal)

        thread = threading.Thread(target=refuse)
        thread.start()
        followed = cli("submit", *SOURCE, "--yes", "--follow", code=9)
        thread.join()
        assert front.refused[0] == 403
        assert 503 in front.refused
        assert "digits-chief-0: Running" in followed.out
        # The remedy is shown before the patience ends.
        assert re.search(r"warning: .*; trying again; if it stays so: grant .* by a Role", followed.err)
        assert "the job is no longer followed, and may still run: the Kubernetes API server" in followed.err
        assert 'refuses: pods is forbidden: User "me" cannot list' in followed.err
        assert "then follow it again: tfx-estimator submit --attach submitted/digits\n" in followed.err
        # Whether it still exists is unknown then.
        assert "may still run" not in cli("submit", "--attach", "submitted/digits", code=6).err
        front.begin(*restart)
        done.touch()
        out, err = cli("submit", "--attach", "submitted/digits")
        assert out.endswith("digits: Succeeded\n")
        assert "the service answers again" in err
        assert operator.started == ["digits-chief-0"]


# As of a TrainJob, in test_trainjob.py.
@pytest.mark.long
def test_a_failed_chief_is_reported_with_its_own_error_and_restarted(server, tmp_path, cli):
    code = "import sys; print('tfx-estimator: the loss is NaN from step 30 on'); sys.exit(5)"
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", code]) as operator:
        for tries in (1, 2):
            err = cli("submit", *SOURCE, "--yes", "--follow", code=5).err
            assert "ended with exit code 5; its log ends with:" in err
            assert "the loss is NaN from step 30 on" in err
            assert "submitted/digits/logs/digits-chief-0." in err
            assert len(operator.started) == tries


def test_a_chief_that_is_killed_each_time_is_ended_past_the_limit(server, tmp_path, cli):
    shell = ["sh", "-c", "echo step 30; sleep 1; kill -9 $$"]
    limit = ["--set", "trainer.distribution.max_restarts=2"]
    with Operator(server, tmp_path / "pods", lambda *_: shell) as operator:
        out, err = cli("submit", *SOURCE, *limit, "--yes", "--follow", code=5)
        assert "was not started again (deploy.tfjob.backoff_limit): the pod digits-chief-0 was killed by SIGKILL" in err
        assert err.count("warning: chief-0 was killed by SIGKILL; its pod") == 3
        assert "the operator did not end the TFJob, and it is deleted" in err
        wait_for_none()
        assert len(operator.started) <= 4
    assert "step 30" in out


def test_the_reason_why_pods_wait_is_reported_and_the_wait_has_a_deadline(server, tmp_path, monkeypatch, cli):
    monkeypatch.setattr(following, "_NOTICE_SECONDS", 1.0)
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: 3 Too few cpu"}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/digits-chief-0/status"

    def schedule() -> bool:
        with contextlib.suppress(RefusedError):
            server.patch(path, {"status": {"conditions": [full]}})
            return True
        return False

    with Operator(server, tmp_path / "pods") as operator, futures.ThreadPoolExecutor(1) as beside:
        operator.unscheduled = {"chief"}
        scheduling = beside.submit(wait_until, schedule, "a chief's pod to be scheduled", 60, every=0.2)
        timeout = ["--set", "deploy.tfjob.pending_timeout=6"]
        err = cli("submit", *SOURCE, *timeout, "--yes", "--follow", code=10).err
        assert scheduling.result()
        assert err.count("warning: waiting for pods: chief-0 Unschedulable: 0/3 nodes: 3 Too few cpu\n") == 1
        assert re.search(r"did not start for \d+ s: chief-0 Unschedulable", err)
        wait_for_none()


def test_a_namespace_that_does_not_admit_the_pods_is_reported_in_its_own_words(server, tmp_path, monkeypatch, cli):
    monkeypatch.setattr(following, "_NOTICE_SECONDS", 0.5)
    pod = {"metadata": {"name": "digits-chief-0"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}

    def refuse() -> None:
        """Reports the refusal as the training operator does."""
        wait_until(lambda: Kube(namespace=NAMESPACE).read("digits"), "the TFJob", every=0.1)
        with pytest.raises(RefusedError) as caught:
            server.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        about = {"kind": "TFJob", "name": "digits", "namespace": NAMESPACE, "apiVersion": "kubeflow.org/v1"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for number, name in enumerate(("digits", "digits-2")):
            message = f"Error creating: {json.loads(caught.value.text)['message']}" if number == 0 else "another job's"
            event = {"type": "Warning", "reason": "FailedCreatePod", "message": message, "lastTimestamp": now}
            event.update(metadata={"name": f"refused.{number}"}, involvedObject={**about, "name": name})
            server.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/events", event)

    with (
        Operator(server, tmp_path / "pods") as operator,
        server.quota(pods="0"),
        futures.ThreadPoolExecutor(1) as beside,
    ):
        operator.pending = True
        refusing = beside.submit(refuse)
        timeout = ["--set", "deploy.tfjob.pending_timeout=6"]
        err = cli("submit", *SOURCE, *timeout, "--yes", "--follow", code=10).err
        refusing.result()
        # Those of an earlier wait do not count.
        late = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
        assert Kube(namespace=NAMESPACE).refusal("digits", late) == ""
        words = 'FailedCreatePod: Error creating: pods "digits-chief-0" is forbidden: exceeded quota: full, requested'
        assert err.count(f"warning: waiting for pods: {words}") == 1
        assert re.search(rf"did not start for \d+ s: {re.escape(words)}", err)
        wait_for_none()


def wait_for_none() -> None:
    wait_until(lambda: not Kube(namespace=NAMESPACE).read("digits"), "the end of the deleted TFJob", every=0.1)


def test_an_interrupted_watch_leaves_the_job_which_may_be_cancelled(server, tmp_path, cli):
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, "/nowhere"]):
        timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert "the job digits continues" in cli("submit", *SOURCE, "--yes", "--follow", code=130).err
        timer.join()
        assert Kube().read("digits")
        cli("submit", "--cancel", "submitted/digits")
        wait_for_none()
        assert "is gone, and its result" in cli("submit", "--attach", "submitted/digits", code=6).err


def test_an_unreachable_or_unknown_cluster_is_reported(server, monkeypatch, cli, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(follow, "START_SECONDS", 0.3)
    (tmp_path / "config").write_text(server.kubeconfig.read_text().replace(f":{server.port}", ":9"))
    err = cli("submit", *SOURCE, "--yes", code=6).err
    assert "has not answered" in err
    assert "Traceback" not in err
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    cli("submit", *SOURCE, "--yes", code=6)


@pytest.fixture
def start(server, tmp_path, monkeypatch, cli) -> Callable[..., str]:
    """Compiles and runs the commands that `compile` prints; returns kubectl's output."""
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")
    # kubectl caches a server's API there.
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*overrides: str, only_apply: bool = False) -> str:
        out = cli("compile", *SOURCE, "--output", "job.yaml", "--force", *words(*overrides)).out
        found = re.search(r"start it.*?: (kubectl .*)", out)
        command = found[1].split(" && ")[-1] if only_apply else found[1]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_recreated_with_the_current_declaration_each_time(server, start, tmp_path):
    done = tmp_path / "done"
    others = {"name": "others", "labels": {"tfx-estimator/pipeline": "others"}}
    server.ask("POST", CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": others})
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, str(done)]) as operator:
        start()
        first, config_map = job_of(server), config_map_of(server)
        wait_until(lambda: operator.started == ["digits-chief-0"], "the first chief", every=0.1)
        # Applying the same again starts nothing; a changed file would alter the running job.
        start(only_apply=True)
        same = job_of(server)["metadata"]
        assert (same["uid"], same["generation"]) == (first["metadata"]["uid"], first["metadata"]["generation"])
        # A running job is deleted with its pods before the next, also one of an earlier version.
        server.patch(f"{JOBS}/digits", {"metadata": {"labels": {PIPELINE: None}}})
        assert 'tfjob.kubeflow.org "digits" deleted' in start()
        assert (second := job_of(server))["metadata"]["uid"] != first["metadata"]["uid"]
        wait_until(lambda: operator.started == ["digits-chief-0"] * 2, "the second chief", every=0.1)
        assert config_map_of(server)["metadata"]["name"] == config_map["metadata"]["name"]
        done.touch()
        wait_until(lambda: "Succeeded" in str(job_of(server).get("status")), "the second TFJob's success", every=0.1)
        done.unlink()
        start("trainer.train_steps=7")
        third, changed = job_of(server), config_map_of(server)
        assert len({each["metadata"]["uid"] for each in (first, second, third)}) == 3
        wait_until(lambda: operator.started == ["digits-chief-0"] * 3, "the third chief", every=0.1)
        assert changed["metadata"]["name"] != config_map["metadata"]["name"]
        assert yaml.safe_load(changed["data"]["declaration.yaml"])["trainer"]["train_steps"] == 7
        spec = third["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
        mounted = next(each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each)
        assert mounted == changed["metadata"]["name"]
        assert server.ask("GET", f"{CONFIG_MAPS}/others")["metadata"]["labels"] == others["labels"]


def job_of(server) -> dict[str, Any]:
    (job,) = server.ask("GET", JOBS)["items"]
    return job


def config_map_of(server) -> dict[str, Any]:
    listed = server.ask("GET", CONFIG_MAPS)["items"]
    (found,) = [each for each in listed if each["metadata"]["name"].startswith("digits-")]
    return found
