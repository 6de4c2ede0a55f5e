"""TensorFlow's multi-worker Estimator tutorial has the same losses here as its plain script, step by step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.conftest import digits, training  # noqa: F401
from tests.equivalence.conftest import read_losses
from tests.examples import EXAMPLES
from tfx_estimator.components.trainer.cluster.plan import free_ports
from tfx_estimator.components.trainer.settings import Settings

pytestmark = [pytest.mark.equivalence, pytest.mark.cluster, pytest.mark.timeout(300)]

STEPS = 50
# Absolute tolerance, in float32.
LOSS = 1e-5
# Strategy -> the tasks of the plain script in addition to the chief.
TASKS: dict[str, tuple[str, ...]] = {"mirrored": (), "multi_worker_mirrored": ("worker",), "parameter_server": ("ps",)}
CHECK = {"notes": [], "batch": "global batch 128: TrainSpec.input_fn makes 64 for each of 2 replicas"}
WORKERS: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's module file, and the one that seeds it, in their own folder."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for source in (
        EXAMPLES / "multi-worker-tutorial" / "tutorial.py",
        Path(__file__).parent / "tutorial" / "seeded.py",
    ):
        shutil.copy(source, folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder / "seeded.py"


@pytest.fixture
def plain(module: Path, tmp_path: Path, digits: dict[str, list[Any]]) -> Callable[[str], dict[int, float]]:
    """Trains by the plain script, one process for each task; returns the losses of all steps."""

    def train(strategy: str) -> dict[int, float]:
        kinds = ("chief", *TASKS[strategy])
        cluster = dict(zip(kinds, ([f"127.0.0.1:{port}"] for port in free_ports(len(kinds)))))
        folder = str(tmp_path / "plain")
        program = [str(module), strategy, digits["examples"][0].uri, folder, str(STEPS)]
        command = [sys.executable, "-m", "tfx_estimator.estimator", *program]
        tasks = []
        for kind in kinds:
            tf_config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})
            # Variables without a task, as on one device.
            environment = {**os.environ, **({"TF_CONFIG": tf_config} if TASKS[strategy] else {})}
            log = (tmp_path / f"{kind}.log").open("w")
            tasks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            assert tasks[0].wait(200) == 0, (tmp_path / "chief.log").read_text()[-3000:]
        finally:
            # A parameter server never exits.
            for task in tasks[1:]:
                task.kill()
                task.wait(20)
        return dict(read_losses(folder))

    return train


@pytest.mark.parametrize(
    ("train", "others", "check"),
    [
        pytest.param(WORKERS, {"evaluator": True}, CHECK, marks=pytest.mark.long),
        pytest.param({"strategy": "mirrored", "devices": {"cpu": 2}}, {}, CHECK, marks=pytest.mark.long),
        pytest.param({"strategy": "parameter_server", "workers": 1, "ps": 1}, {}, None, marks=pytest.mark.long),
    ],
    ids=lambda value: value.get("strategy") if isinstance(value, dict) else None,
)
def test_the_tutorial_has_the_losses_of_its_plain_script(plain, training, module, train, others, check):
    settings = Settings(arguments={"distribution": {"train": train, "max_restarts": 0, **others}})
    model, model_run = training.run(settings, STEPS, trainer_fn="seeded.trainer_fn")
    found = dict(read_losses(f"{model_run.uri}/Format-Serving"))
    expected = plain(train["strategy"])
    assert sorted(found) == sorted(expected)
    assert len(expected) >= STEPS
    np.testing.assert_allclose([found[step] for step in expected], list(expected.values()), rtol=0, atol=LOSS)
    assert len(set(expected.values())) > STEPS / 2
    assert (model / "Format-Serving" / "saved_model.pb").is_file()
    verdict = Path(model_run.uri) / "replica_check.json"
    assert (json.loads(verdict.read_text()) if verdict.exists() else None) == check


@pytest.mark.long
@pytest.mark.parametrize("name", ["trainer_fn", "tensors_trainer_fn"])
def test_under_two_workers_of_a_parameter_server_the_tutorial_does_its_steps(training, module, name):
    train = {"strategy": "parameter_server", "workers": 2, "ps": 1}
    settings = Settings(arguments={"distribution": {"train": train, "max_restarts": 0, "evaluator": True}})
    model, model_run = training.run(settings, STEPS, trainer_fn=f"seeded.{name}")
    # Each worker completes its step.
    assert STEPS <= model_run.get_float_custom_property("last_step") <= STEPS + 2
    assert (model / "Format-Serving" / "saved_model.pb").is_file()
