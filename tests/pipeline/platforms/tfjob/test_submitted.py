"""A compiled TFJob that is submitted: by the command line, through a real API server; the pods are shells."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import pytest

from tests.pipeline.platforms.tfjob.api_server import NAMESPACE, RefusedError
from tests.pipeline.platforms.tfjob.operator import Operator
from tests.pipeline.platforms.tfjob.proxy import proxied
from tests.pipeline.runners.deployed import IMAGE, words
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.tfjob import following
from tfx_estimator.pipeline.platforms.tfjob.api import Kube

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

SOURCE = ["digits", "--target", "tfjob"]
SOURCE += words(
    f"deploy.image={IMAGE}",
    "deploy.pipeline_root=/mnt/work/runs",
    "deploy.volumes=[{claim: work, path: /mnt/work}]",
    f"deploy.tfjob.namespace={NAMESPACE}",
)
# A chief that works until it is let go.
WORKS = """
import os, sys, time
print("Trainer at step 100", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def hurried(monkeypatch, tmp_path) -> None:
    """Waits are short; what is left lies in a folder of the test's own."""
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(follow, "_FIRST_WAIT", 0.1)
    monkeypatch.chdir(tmp_path)


def test_it_is_created_once_followed_through_a_cut_connection_and_started_again(server, tmp_path, monkeypatch, capsys):
    done = tmp_path / "done"
    with (
        proxied(server, tmp_path, monkeypatch) as proxy,
        Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, str(done)]) as operator,
    ):
        assert main(["submit", *SOURCE, "--yes"]) == 0
        out = capsys.readouterr().out
        assert f"address: https://127.0.0.1:{proxy.port}/apis/kubeflow.org/v1/namespaces/default/tfjobs/digits" in out
        config_maps = server.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
        (ours,) = [each["metadata"] for each in config_maps if each["metadata"]["name"].startswith("digits-")]
        job = Kube().read("digits")
        assert job
        assert [each["uid"] for each in ours["ownerReferences"]] == [job["metadata"]["uid"]]
        # Another declaration of this name is not started beside it.
        assert main(["submit", *SOURCE, "--yes", "--set", "trainer.train_steps=7"]) == 6
        assert "another submission of this pipeline goes on" in capsys.readouterr().err

        def interfere() -> None:
            time.sleep(1.5)
            proxy.cut()
            time.sleep(1.0)
            done.touch()

        thread = threading.Thread(target=interfere)
        thread.start()
        assert main(["submit", *SOURCE, "--yes", "--follow"]) == 0
        thread.join()
        out, err = capsys.readouterr()
        assert "the same was submitted before" in out
        assert "    Trainer at step 100\n" in out
        assert out.endswith("digits: Succeeded\n")
        assert "Traceback" not in err
        assert main(["submit", *SOURCE, "--yes"]) == 0
        assert operator.started == ["digits-chief-0"]
        assert main(["submit", *SOURCE, "--yes", "--again", "--follow"]) == 0
        assert operator.started == ["digits-chief-0"] * 2
        # A garbage collector, which is not here, leaves what has one owner left.
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ours['name']}"
        uids = [each["uid"] for each in server.ask("GET", path)["metadata"]["ownerReferences"]]
        again = Kube().read("digits")
        assert again
        assert sorted(uids) == sorted([job["metadata"]["uid"], again["metadata"]["uid"]])


def test_a_chief_that_fails_is_told_in_its_own_words_and_started_anew(server, tmp_path, capsys):
    code = "import sys; print('tfx-estimator: the loss is NaN from step 30 on'); sys.exit(5)"
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", code]) as operator:
        for tries in (1, 2):
            assert main(["submit", *SOURCE, "--yes", "--follow"]) == 5
            err = capsys.readouterr().err
            assert "ended with exit code 5; its log ends with:" in err
            assert "the loss is NaN from step 30 on" in err
            assert "submitted/digits/logs/digits-chief-0." in err
            assert len(operator.started) == tries


def test_a_chief_that_is_killed_each_time_is_ended_past_the_limit(server, tmp_path, capsys):
    shell = ["sh", "-c", "echo step 30; sleep 1; kill -9 $$"]
    limit = ["--set", "trainer.distribution.max_restarts=2"]
    with Operator(server, tmp_path / "pods", lambda *_: shell) as operator:
        assert main(["submit", *SOURCE, *limit, "--yes", "--follow"]) == 5
        out, err = capsys.readouterr()
        assert "was not started again (deploy.tfjob.backoff_limit): the pod digits-chief-0 was killed by SIGKILL" in err
        assert err.count("warning: chief-0 was killed by SIGKILL; its pod") == 3
        assert "the operator did not end the TFJob, and it is deleted" in err
        wait_for_none()
        assert len(operator.started) <= 4
    assert "step 30" in out


def test_what_pods_wait_for_is_told_and_has_a_deadline(server, tmp_path, monkeypatch, capsys):
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
        assert main(["submit", *SOURCE, *timeout, "--yes", "--follow"]) == 5
        assert scheduling.result()
        err = capsys.readouterr().err
        assert err.count("warning: waiting for pods: chief-0 Unschedulable: 0/3 nodes: 3 Too few cpu\n") == 1
        assert re.search(r"did not start for \d+ s: chief-0 Unschedulable", err)
        wait_for_none()


def wait_for_none() -> None:
    """Waits until a TFJob that was deleted has gone."""
    wait_until(lambda: not Kube(namespace=NAMESPACE).read("digits"), "the end of the deleted TFJob", every=0.1)


def test_who_stops_watching_leaves_it_and_may_cancel_it(server, tmp_path, capsys):
    with Operator(server, tmp_path / "pods", lambda *_: [sys.executable, "-c", WORKS, "/nowhere"]):
        timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert main(["submit", *SOURCE, "--yes", "--follow"]) == 130
        timer.join()
        assert "the job digits goes on" in capsys.readouterr().err
        assert Kube().read("digits")
        assert main(["submit", "--cancel", "submitted/digits"]) == 0
        wait_for_none()
        assert main(["submit", "--attach", "submitted/digits"]) == 6
        assert "is not there any more" in capsys.readouterr().err


def test_what_the_cluster_has_not_is_said(server, monkeypatch, capsys, tmp_path):
    assert main(["submit", *SOURCE, "--yes", "--set", "deploy.tfjob.namespace=visoin"]) == 6
    assert "visoin" in capsys.readouterr().err
    (tmp_path / "config").write_text(server.kubeconfig.read_text().replace("a-token", "no-token"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert main(["submit", *SOURCE, "--yes"]) == 6
    assert "does not know who asks" in capsys.readouterr().err
    monkeypatch.setattr(follow, "START_SECONDS", 0.3)
    (tmp_path / "config").write_text(server.kubeconfig.read_text().replace(f":{server.port}", ":9"))
    assert main(["submit", *SOURCE, "--yes"]) == 6
    err = capsys.readouterr().err
    assert "has not answered" in err
    assert "Traceback" not in err
    monkeypatch.setenv("KUBECONFIG", str(Path(tmp_path, "nowhere")))
    assert main(["submit", *SOURCE, "--yes"]) == 6
