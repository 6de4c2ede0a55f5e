"""A launcher, a real API server and an operator; the pods are shells that print what tasks would."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import psutil
import pytest

from tests.pipeline.platforms.training_jobs.operator import Operator
from tests.pipeline.platforms.training_jobs.proxy import Proxy, between
from tests.pipeline.runners.deployed import IMAGE
from tests.waiting import wait_until
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.training_jobs import failures, following
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.launcher import TRAINING, Launcher

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

WORKERS = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 2}"
# Writes the files of a task's supervisor for 20 steps from the given one, and the export.
TRAIN = """
import json, os, sys, time
logs, export, first = sys.argv[1], sys.argv[2], 0
attempt = 1 + sum(name.startswith("chief-0.attempt-") for name in os.listdir(logs))
path = f"{logs}/chief-0.attempt-{attempt}.progress.jsonl"
for step in (first, first + 10, first + 20):
    event = {"event": "step", "time": time.time(), "step": step, "loss": 0.5, "cpu": 1.0, "peak_rss": 1}
    with open(path, "a") as file:
        file.write(json.dumps(event) + "\\n")
    print("at step", step, flush=True)
    time.sleep(0.1)
with open(path, "a") as file:
    file.write(json.dumps({"event": "evaluated", "time": time.time(), "step": first + 20,
                           "metrics": {"accuracy": 0.75}}) + "\\n")
os.makedirs(export, exist_ok=True)
open(export + "/saved_model.pb", "w").close()
"""
# The error that a pod leaves in its termination message.
_LEFT = {"type": "UserCodeError", "what": "your loss is no number", "expected": "a number", "todo": "mend it"}
LEAVES = f"echo '{json.dumps(_LEFT)}' > $TFX_ESTIMATOR_TERMINATION_LOG"


def launcher(folder: Path, *overrides: str, kube: Optional[Kube] = None) -> Launcher:
    volume = f"deploy.volumes=[{{claim: work, path: '{folder}'}}]"
    common = (f"deploy.image={IMAGE}", volume, WORKERS, "trainer.train_steps=20")
    declaration = load("digits", (*common, *overrides)).declaration
    settings = Settings(declaration=json.loads(declaration.to_json()), stall_timeout=60.0)
    logs = folder / "training" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    job = Job("{}", "{}", {}, str(logs.parent), settings, "estimator")
    return Launcher(kube or Kube(), job, declaration.deploy, "digits", str(logs))


def trains(folder: Path) -> list[str]:
    """The command of a chief's pod that trains."""
    training = folder / "training"
    return [sys.executable, "-c", TRAIN, str(training / "logs"), str(training / "exported" / "Format-Serving")]


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


@pytest.mark.long
def test_training_survives_a_restart_of_the_server(fresh_server, tmp_path):
    wait = tmp_path / "go"
    with Operator(fresh_server, tmp_path / "pods", _waits(tmp_path, wait)):
        found, thread = _in_a_thread(tmp_path)
        _wait_for_chief(tmp_path)
        fresh_server.stop_server()
        time.sleep(2)
        fresh_server.start_server()
        wait.touch()
        thread.join(60)
    assert found[0].last_step == 20
    assert not found[0].restarts


def test_training_survives_a_cut_watch(server, tmp_path, monkeypatch):
    wait = tmp_path / "go"
    operator = Operator(server, tmp_path / "pods", _waits(tmp_path, wait))
    with between(server, Proxy, tmp_path, monkeypatch) as proxy, operator:
        found, thread = _in_a_thread(tmp_path)
        _wait_for_chief(tmp_path)
        time.sleep(1)
        # The two watches, and the logs.
        assert proxy.cut() >= 4
        wait.touch()
        thread.join(60)
    assert found[0].last_step == 20
    (log,) = (tmp_path / "training/logs/pods").glob("*-chief-0.*.log")
    assert log.read_text().splitlines() == ["waits", "at step 0", "at step 10", "at step 20"]


def _waits(folder: Path, until: Path) -> Callable[[str, int, int], list[str]]:
    """A chief that trains once a file exists, and workers that have finished."""
    chief = shell(f'echo waits; while [ ! -e {until} ]; do sleep 0.1; done; exec "$@"')
    return lambda kind, *_: [*chief, "sh", *trains(folder)] if kind == "chief" else shell("true")


def _in_a_thread(folder: Path) -> tuple[list[Outcome], threading.Thread]:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(launcher(folder).run()))
    thread.start()
    return found, thread


def _is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_job_stuck_in_restarting_ends_with_the_final_failure(server, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "FINAL_SECONDS", 2.0)
    # The chief's log has no end.
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 1.0)
    lost, pid = tmp_path / "lost", tmp_path / "pid"

    def argv(kind: str, index: int, number: int) -> list[str]:
        if kind == "worker":
            # The chief loses the worker and ends before it, by more than a poll of both takes.
            return shell(f"echo $$ > {pid}; while [ ! -e {lost} ]; do sleep 0.05; done; sleep 0.1; {LEAVES}; exit 4")
        if number:
            # Restarted while the worker runs, it would end the restart, and the worker's end the job.
            wait_until(lambda: _is_over(int(pid.read_text())), "the worker's end")
        return shell("exec sleep 60" if number else f"sleep 1; touch {lost}; exit 138")

    with Operator(server, tmp_path / "pods", argv) as operator:
        with pytest.raises(errors.UserCodeError, match="your loss is no number"):
            launcher(tmp_path).run()
        assert operator.started[2:] == [operator.started[0]]
        wait_until(lambda: not Kube().jobs()["items"], "the end of the deleted TFJob", every=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo first; echo ModuleNotFoundError: No module named networks; exit 1", "No module named networks"),
        ("kill -9 $$", r"backoff_limit.*was killed by SIGKILL"),
    ],
)
def test_a_pod_without_a_termination_message_is_reported_by_its_log_or_signal(server, tmp_path, text, message):
    operator = Operator(server, tmp_path / "pods", lambda *_: shell(text))
    with operator, pytest.raises(errors.TaskFailedError, match=message):
        launcher(tmp_path, "deploy.tfjob.backoff_limit=1").run()


@pytest.mark.long
def test_a_rerun_adopts_its_own_job_and_refuses_a_foreign_one(server, tmp_path):
    first = launcher(tmp_path)

    def argv(kind: str, index: int, number: int) -> list[str]:
        return trains(tmp_path) if kind == "chief" else shell("true")

    with Operator(server, tmp_path / "pods", argv) as operator:
        assert first.run().last_step == 20
        started = len(operator.started)
        # As after a driver that was killed before publishing.
        assert launcher(tmp_path).run().last_step == 20
        assert len(operator.started) == started
        name = Kube().jobs()["items"][0]["metadata"]["name"]
        path = f"/apis/kubeflow.org/v1/namespaces/default/tfjobs/{name}"
        server.patch(path, {"metadata": {"annotations": {TRAINING: "/somewhere/else"}}})
        with pytest.raises(errors.PipelineError, match="does not train in"):
            launcher(tmp_path).run()
        server.patch(path, {"metadata": {"annotations": {TRAINING: str(tmp_path / "training")}}})
        # A succeeded job whose model is missing trains again.
        (tmp_path / "training/exported/Format-Serving/saved_model.pb").unlink()
        assert launcher(tmp_path).run().last_step == 20
        assert len(operator.started) == started + 2


@pytest.mark.long
def test_pods_that_never_start_have_a_deadline(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator:
        operator.pending = True
        with pytest.raises(errors.NotStartedError, match=r"does the namespace admit them.*get events"):
            launcher(tmp_path, "deploy.tfjob.pending_timeout=11").run()
        wait_until(lambda: not Kube().jobs()["items"], "the end of the deleted TFJob", every=0.1)


@pytest.mark.long
def test_pods_that_give_up_waiting_for_one_that_has_no_node_yet_are_no_restarts(server, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "_CAUSE_SECONDS", 0.5)
    monkeypatch.setattr(failures, "_CONSEQUENCE_SECONDS", 0.5)

    come = tmp_path / "come"

    def argv(kind: str, index: int, number: int) -> list[str]:
        if kind == "worker":
            return shell(f"touch {come}")
        if number < 3:
            # Like one whose trainer.start_timeout has passed.
            return shell("sleep 1; exit 138")
        operator.unscheduled = set()
        # The first chief that has the worker fails as well.
        fails = f"while [ ! -e {come} ]; do sleep 0.1; done; sleep 1; exit 138"
        return trains(tmp_path) if number > 3 else shell(fails)

    with Operator(server, tmp_path / "pods", argv) as operator:
        operator.unscheduled = {"worker"}
        outcome = launcher(tmp_path, "deploy.tfjob.backoff_limit=1").run()
    assert outcome.last_step == 20
    assert [restart.cause for restart in outcome.restarts] == ["chief-0 ended with exit code 138"]
    assert len(operator.started) == 6


def _wait_for_chief(folder: Path) -> None:
    wait_until(lambda: any((folder / "pods").glob("*chief*.log")), "the chief's pod", every=0.1)
