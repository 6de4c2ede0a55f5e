"""A user's run_fn that creates its own strategy, which is the declared one."""

from __future__ import annotations

import os
import signal
import threading
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.others.conftest import BOTH
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
WORKERS = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}
SERVED = {"train": {"strategy": "parameter_server", "workers": 2, "ps": 1}}


def _check(trained, served, labels):
    probabilities = served(trained.model / "Format-Serving")
    assert ((probabilities > 0.5) == labels).mean() >= 0.9
    return probabilities


def test_of_two_functions_the_run_fn_is_called_like_by_tfx(others, served, eval_examples):
    model = others.models[BOTH] / "Format-Serving"
    # The output's name in a Keras model: the other function's Estimator has another.
    outputs = tf.saved_model.load(str(model)).signatures["serving_default"].structured_outputs
    assert list(outputs) == ["probability"]
    assert ((served(model) > 0.5) == eval_examples[1]).mean() >= 0.9


@pytest.mark.long
def test_it_trains_like_without_the_other_function(others, served):
    both, alone = (served(others.models[name] / "Format-Serving") for name in (BOTH, "cancer_keras"))
    np.testing.assert_allclose(both, alone, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "distribution", "tasks"),
    [
        # TensorFlow would refuse its MirroredStrategy().
        ("cancer_keras", WORKERS, ["chief-0", "worker-0"]),
        ("cancer_workers", WORKERS, ["chief-0", "worker-0"]),
        ("cancer_keras", MIRRORED, ["chief-0"]),
    ],
)
def test_replicas_train_the_same_model_and_only_the_chief_publishes(
    others, train, served, eval_examples, module, distribution, tasks
):
    trained = train(module, distribution=distribution)
    probabilities = _check(trained, served, eval_examples[1])
    # Workers share the batch of each step: the updates equal those of one device up to the last digits.
    np.testing.assert_allclose(probabilities, served(others.models["cancer_keras"] / "Format-Serving"), atol=0.05)
    assert trained.tasks == tasks
    assert trained.properties["restarts"] == 0
    assert not list(trained.logs.parent.glob("tmp_worker_*"))


@pytest.mark.long
@pytest.mark.faults
def test_training_survives_a_killed_worker(train, served, eval_examples, tmp_path: Path):
    epochs = tmp_path / "epochs"
    epochs.mkdir()
    distribution = {**WORKERS, "max_restarts": 1}
    over = threading.Event()
    with futures.ThreadPoolExecutor(1) as beside:
        killing = beside.submit(_kill_in_epoch, epochs / "worker-0", 4, over)
        try:
            trained = train("cancer_workers", distribution=distribution, custom_config={"mark_epochs": str(epochs)})
        finally:
            over.set()
        killing.result()
    _check(trained, served, eval_examples[1])
    assert trained.properties["restarts"] == 1
    for name in ("chief-0", "worker-0"):
        marks = [line.split() for line in (epochs / name).read_text().splitlines()]
        pids = list(dict.fromkeys(pid for pid, _ in marks))
        assert len(pids) == 2, "all tasks were started again, once"
        done = [[int(epoch) for pid, epoch in marks if pid == each] for each in pids]
        # BackupAndRestore resumes in the interrupted epoch.
        assert done[0][0] == 0
        assert 1 <= done[1][0] <= done[0][-1]
        assert done[1][-1] == 9


def _kill_in_epoch(path: Path, epoch: int, over: threading.Event) -> None:
    def find() -> int | None:
        assert not over.is_set(), f"training has ended before epoch {epoch}"
        lines = path.read_text().splitlines() if path.exists() else []
        return int(lines[-1].split()[0]) if lines and int(lines[-1].split()[1]) >= epoch else None

    os.kill(wait_until(find, f"epoch {epoch} in {path}", 240, every=0.01), signal.SIGKILL)


@pytest.mark.long
def test_parameter_servers_are_coordinated_by_the_chief(train, served, eval_examples):
    trained = train("cancer_served", distribution=SERVED)
    _check(trained, served, eval_examples[1])
    assert trained.tasks == ["chief-0", "ps-0", "worker-0"]
    assert trained.properties["restarts"] == 0
