"""A launcher with recorded responses of API servers, and the modules for its pods; without a server."""

from __future__ import annotations

import io
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from tests.folders import write_files
from tests.pipeline.platforms.training_jobs.cluster import UID, Cluster, ended, owned, pod
from tests.pipeline.platforms.training_jobs.test_launcher import launcher
from tests.root import run_python
from tests.waiting import wait_until
from tfx_estimator.pipeline.base.errors import (
    NotStartedError,
    PipelineError,
    StoppedError,
    TaskFailedError,
    UnfollowedError,
)
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.platforms import follow
from tfx_estimator.pipeline.platforms.follow import RefusedError, UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs import failures, following, watching
from tfx_estimator.pipeline.platforms.training_jobs import launcher as module
from tfx_estimator.pipeline.platforms.training_jobs.following import Following
from tfx_estimator.pipeline.platforms.training_jobs.launcher import modules_of
from tfx_estimator.pipeline.platforms.training_jobs.watching import FOUND, JOB, LISTED, LOST, POD, Notice, Watching

KUBECTL = "kubectl --context 'arn:of/mine it'"


@pytest.fixture
def kube(monkeypatch) -> Cluster:
    monkeypatch.setattr(following, "_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(following, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(follow, "REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 0.1)
    monkeypatch.setattr(watching, "_FIRST_WAIT", 0.05)
    return Cluster("arn:of/mine it")


def test_a_training_whose_pods_may_not_be_listed_is_left_alone(kube, tmp_path):
    kube.of_pods = RefusedError("pods is forbidden")
    with pytest.raises(UnfollowedError, match=r"may still run.*pods is forbidden") as caught:
        launcher(tmp_path, "deploy.tfjob.pending_timeout=0.3", kube=kube).run()
    assert (caught.value.exit_code, kube.deleted) == (9, [])
    assert "run the same again: it finds the job" in caught.value.todo
    # What no restarting server says is told at once.
    kube.of_pods = PipelineError("the cluster has no TFJobs")
    with pytest.raises(PipelineError, match="no TFJobs"):
        launcher(tmp_path, "deploy.tfjob.pending_timeout=0.3", kube=kube).run()
    assert kube.deleted == []


class Unheard:
    """A listener that ignores restarts."""

    noted_at = 0.0

    def restarted(self, cause: str, what: str) -> None: ...


@pytest.fixture
def job(kube, tmp_path) -> Iterator[Following]:
    """A followed TFJob of two pods, whose events the test supplies."""
    kube.create(launcher(tmp_path, kube=kube)._annotated())
    job = Following(kube, kube.there, str(tmp_path / "pods"), Unheard(), 0.3)
    job._watching.end()
    yield job
    job.end(0.0)


def test_a_pod_that_waits_again_is_given_up(kube, clock, job):
    # A restarted worker finds no node.
    job.take(Notice(POD, LISTED, [pod("Running", uid="1", task="chief-0"), pod("Running", uid="2")]))
    clock.now += 0.4
    assert job.hopeless() is None
    job.take(Notice(POD, LISTED, [pod("Running", uid="1", task="chief-0"), pod("Pending", uid="3")]))
    assert job.hopeless() is None
    clock.now += 0.4
    error = job.hopeless()
    assert (type(error), error.exit_code) == (NotStartedError, 10)
    assert "1 of 2 pods run" in error.what
    assert "and it is deleted" in job.give_up(error).todo
    assert kube.deleted == [UID]


def test_each_reason_why_no_pods_are_created_is_told_once(kube, job):
    told = []
    for reason in ("a quota", "a quota", "", "an image policy"):
        kube.refused = reason
        told += job.notices()
    assert told == ["waiting for pods: a quota", "waiting for pods: an image policy"]


def test_a_queued_job_keeps_waiting(clock, job):
    job.object["spec"]["runPolicy"]["suspend"] = True
    clock.now += 0.4
    assert job.hopeless() is None
    del job.object["spec"]["runPolicy"]["suspend"]
    clock.now += 0.4
    assert "there are no pods" in str(job.hopeless())


@pytest.mark.parametrize(
    ("state", "heard", "chief", "hopeless"),
    [
        ("Restarting", FOUND, "Running", True),
        ("Running", FOUND, "Running", False),
        # It may have ended since, or its operator is down.
        ("Restarting", LOST, "Running", False),
        ("Restarting", FOUND, "Succeeded", False),
    ],
)
def test_only_a_job_stuck_in_restarting_is_given_up(kube, job, monkeypatch, state, heard, chief, hopeless):
    monkeypatch.setattr(failures, "FINAL_SECONDS", -1.0)
    conditions = [{"type": each, "status": "True"} for each in ("Created", state)]
    job.object = {**kube.there, "status": {"conditions": conditions}}
    job.take(Notice(JOB, heard, UnavailableError("no answer") if heard == LOST else None))
    job.take(Notice(POD, LISTED, [pod(chief, uid="2", task="chief-0")]))
    assert job.hopeless() is None
    job.take(Notice(POD, "MODIFIED", pod("Failed", state=ended(4, message="your loss is no number"))))
    error = job.hopeless()
    assert (isinstance(error, TaskFailedError), "your loss" in str(error)) == (hopeless, hopeless)


@pytest.mark.parametrize(("by", "hopeless"), [("2020-11-23T00:05:00Z", True), ("2200-11-23T00:05:00Z", False)])
def test_a_pod_of_a_lost_node_is_given_up_after_its_grace_period(clock, job, by, hopeless):
    # Kubernetes is deleting it, and starts no other one before it is gone.
    pods = [pod("Running", uid="1", task="chief-0"), pod("Running", uid="2")]
    pods[1]["metadata"]["deletionTimestamp"] = by
    job.take(Notice(POD, LISTED, pods))
    assert job.hopeless() is None
    clock.now += 0.4
    assert (f"worker-1 should have ended by {by}" in str(error := job.hopeless())) == hopeless
    assert hopeless or (error, job.notices()) == (None, [])


def test_a_job_that_does_not_end_after_its_chief_is_given_up(clock, job):
    job.take(Notice(POD, LISTED, [pod("Succeeded", uid="1", task="chief-0"), pod("Running", uid="2")]))
    assert job.hopeless() is None
    clock.now += 0.4
    assert "did not end after its chief" in str(job.hopeless())


def test_a_job_of_another_deploy_section_is_replaced(kube, tmp_path):
    made = launcher(tmp_path, kube=kube)._annotated()
    kube.there = {**made, "metadata": {**made["metadata"], "uid": "old"}}
    assert launcher(tmp_path, kube=kube)._adopts(kube.there)
    other = launcher(tmp_path, "deploy.tfjob.replicas.worker={memory_gb: 16}", kube=kube)
    assert not other._adopts(kube.there)


def test_an_unexplained_failure_says_where_to_look(job, monkeypatch):
    monkeypatch.setattr(following, "LAST_WORDS_SECONDS", 0.0)
    error = job.error({"reason": "TFJobFailed", "message": "nobody knows"})
    assert error.todo == f"{KUBECTL} describe tfjobs {job._name} --namespace vision"


def test_a_job_that_cannot_be_deleted_is_reported(kube, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.3)
    train = launcher(tmp_path, kube=kube)

    def refuses(*_: Any) -> None:
        raise PipelineError("your login has ended")

    monkeypatch.setattr(kube, "delete", refuses)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    # A signal before the launcher handles it would end the tests.
    create = kube.create
    monkeypatch.setattr(kube, "create", lambda *asked: timer.start() or create(*asked))
    with pytest.raises(StoppedError, match="could not be deleted: your login has ended"):
        train.run()
    timer.join()


def test_a_job_that_stays_after_its_deletion_is_reported(kube, tmp_path, monkeypatch):
    monkeypatch.setattr(following, "_DELETED_SECONDS", 0.1)
    train = launcher(tmp_path, kube=kube)
    notes = {module.TRAINING: str(tmp_path / "training")}
    kube.there = {"metadata": {"uid": "old", "annotations": notes, "deletionTimestamp": "now"}}
    kube.goes = False
    with pytest.raises(PipelineError, match="still exists") as caught:
        train.run()
    assert f"blocks it: {KUBECTL} get tfjobs,pods --namespace vision" in caught.value.todo
    notes[module.TRAINING] = "/somewhere/else"
    with pytest.raises(PipelineError, match="does not train in") as caught:
        train.run()
    assert f"{KUBECTL} describe tfjobs {train._name} --namespace vision" in caught.value.todo


def test_a_watch_survives_invalid_objects(kube):
    kube.there = {"metadata": {"uid": UID}}
    kube.of_pods = ["no pod"]
    watch = Watching(kube, "digits", UID)
    try:
        assert next_of(watch, POD).event == LOST
        kube.of_pods = [owned(pod("Running")), owned(pod("Running", uid="2"), "of-an-earlier-job")]
        while (notice := next_of(watch, POD)).event == LOST:
            pass
        assert notice.event == LISTED
        assert [each["metadata"]["uid"] for each in notice.objects] == ["1"]
    finally:
        watch.end()


def next_of(watch: Watching, kind: str) -> Notice:
    def of_kind() -> Optional[Notice]:
        notice = watch.next(1)
        return notice if notice and notice.watch == kind else None

    found = wait_until(of_kind, f"a notice of the watch of {kind}", 30, every=0)
    assert found
    return found


MODULES = {
    "own/train.py": "import common\nfrom shapes.round import CIRCLE\n\n\ndef run_fn(fn_args):\n    pass\n",
    "own/beside.py": "",
    "own/shapes/__init__.py": "",
    "own/shapes/round.py": "CIRCLE = 3.14\n",
    "common.py": "WIDTH = 32\n",
    "mine.yaml": "name: mine\ndata: {dataset: mnist}\ntrainer: {module_file: own/train.py, train_steps: 9}\n",
}


def test_the_imports_of_a_module_file_are_packed_for_the_pods(tmp_path, monkeypatch):
    project = write_files(tmp_path / "project", MODULES)
    loaded = load(project / "mine.yaml")
    # As in a run.
    monkeypatch.syspath_prepend(str(project))
    packed = modules_of(loaded.declaration.trainer)
    assert packed.modules == ("common", "shapes", "shapes.round", "train")
    with zipfile.ZipFile(io.BytesIO(packed.data)) as wheel:
        wheel.extractall(tmp_path / "pod")
    code = "import train; print(train.CIRCLE, train.common.WIDTH)"
    ran = run_python("-c", code, cwd=tmp_path / "pod")
    assert (ran.stdout.split(), ran.stderr) == (["3.14", "32"], "")


def test_a_step_of_a_compiled_pipeline_packs_the_unpacked_module_file(importable):
    in_the_step = "import beside_it\n\n\ndef run_fn(fn_args):\n    pass\n"
    write_files(importable, {"in_the_step.py": in_the_step, "beside_it.py": ""})
    section = TrainerSection.parse_obj({"model": None, "module_file": "in_the_step.py", "train_steps": 9})
    packed = modules_of(section, "in_the_step.run_fn")
    assert packed.modules == ("beside_it", "in_the_step")


def test_built_in_modules_are_not_packed():
    assert modules_of(load("mnist").declaration.trainer) is None
