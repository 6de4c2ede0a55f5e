"""Whole pipelines in TrainJobs and JobSets, whose pods have their own addresses and are killed."""

from __future__ import annotations

import glob
import itertools
from pathlib import Path

import pytest

from tests.pipeline.platforms.training_jobs.controllers import Controllers
from tests.pipeline.platforms.training_jobs.networks import Networks
from tests.pipeline.platforms.training_jobs.test_training import _DATA, compiled, steps_of, summary_of
from tests.pipeline.runners.deployed import IMAGE
from tests.waiting import wait_until
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.kinds import BY_NAME, end_of

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

STEPS = 200
DECLARATION = f"""\
{_DATA}
trainer:
  model: "{{model}}"
  train_steps: {STEPS}
  global_batch_size: 64
  save_checkpoints_steps: 50
  distribution: {{distribution}}
evaluator: {{{{min_accuracy: 0.5}}}}
deploy:
  image: {IMAGE}
  pipeline_root: "{{folder}}"
  volumes: [{{{{claim: work, path: "{{folder}}"}}}}]
  trainjob: {{{{kind: {{kind}}}}}}
"""
TWO_WORKERS = "{train: {strategy: multi_worker_mirrored, workers: 2, timeout_seconds: 20}}"
SERVERS = "{train: {strategy: parameter_server, workers: 2, ps: 1}, evaluator: true}"


def _declared(folder: Path, kind: str, distribution: str, model: str = "networks_of_mine:small") -> str:
    return DECLARATION.format(model=model, kind=kind, distribution=distribution, folder=folder / "work")


def _steps(folder: Path) -> list[int]:
    """Returns the steps that the chief has reported, in order of time."""
    return steps_of(*glob.glob(f"{folder}/work/*/artifacts/Trainer/**/logs/chief-0.*.progress.jsonl", recursive=True))


@pytest.mark.parametrize(
    ("kind", "distribution", "killed"),
    [
        ("TrainJob", TWO_WORKERS, ("node", 1)),
        ("JobSet", TWO_WORKERS, ("node", 0)),
        ("TrainJob", SERVERS, ("ps", 0)),
        ("JobSet", SERVERS, None),
    ],
)
def test_a_whole_pipeline_in_pods_of_which_one_is_killed(server, tmp_path, kind, distribution, killed):
    (*runtime, job), argv = compiled(tmp_path, _declared(tmp_path, kind, distribution), "trainjob")
    kube, done = Kube(kind=BY_NAME[kind]), Path(tmp_path / "killed")
    with (
        Networks(tmp_path) as networks,
        Controllers(server, tmp_path / "pods", lambda *_: argv, networks) as cluster,
    ):
        kube.create(job, runtime)

        def logs() -> str:
            return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in (tmp_path / "pods").glob("*.log"))

        def has_ended() -> bool:
            ended, condition = end_of(kube.read("digits-tfjob") or {})
            assert ended != "Failed", f"{condition}: {logs()}"
            if killed and not done.exists() and max(_steps(tmp_path), default=0) >= 60:
                done.touch()
                cluster.kill(*killed)
            return bool(ended)

        wait_until(has_ended, logs, 600, every=0.5)
        # A restarted pod has another address and is found there.
        assert len({*cluster.addresses}) == len(cluster.started)
        pods = 2 if distribution == TWO_WORKERS else 4
        assert len(cluster.started) == pods if killed is None else len(cluster.started) > pods
    summary = summary_of(tmp_path)
    # Asynchronous workers finish their current step.
    training = summary["training"]
    assert training["last_step"] - training["extra_steps"] == STEPS
    assert distribution == SERVERS or training["extra_steps"] == 0
    assert summary["blessed"] is True
    assert (Path(summary["pushed"]) / "saved_model.pb").exists()
    if distribution == TWO_WORKERS:
        steps = _steps(tmp_path)
        # It resumed from a checkpoint, without missing or repeated steps.
        again = [after for before, after in itertools.pairwise(steps) if after < before]
        assert all(each % 50 == 0 and each >= 50 for each in again)
        assert max(steps) == STEPS


def test_a_users_error_ends_it_and_is_not_retried(server, tmp_path):
    text = _declared(tmp_path, "JobSet", TWO_WORKERS, "networks_of_mine:broken")
    (job,), argv = compiled(tmp_path, text, "trainjob")
    kube = Kube(kind=BY_NAME["JobSet"])
    with Networks(tmp_path) as networks, Controllers(server, tmp_path / "pods", lambda *_: argv, networks) as cluster:
        kube.create(job)
        wait_until(lambda: end_of(kube.read("digits-tfjob") or {})[0], "its end", 300, every=0.5)
        assert end_of(kube.read("digits-tfjob") or {})[0] == "Failed"
        # The worker may have lost the chief before its end.
        assert cluster.started.count("digits-tfjob-node-0-0") == 1
    texts = [path.read_text() for path in (tmp_path / "pods").glob("*.log")]
    assert any("no such layer in my network" in text for text in texts)
