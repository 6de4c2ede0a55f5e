"""A custom job of Vertex AI, whose replicas start here with the environment of Vertex AI."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from tfx.orchestration import metadata
from tfx.types.artifact_utils import deserialize_artifact

from tests.artifacts import outputs
from tests.e2e.conftest import Finished, states_of
from tests.e2e.test_execute import Rehearsal
from tests.pipeline.runners.deployed import COMMON, OF_TARGET, read_steps
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.platforms.vertex.custom_job import REPLICA
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import REHEARSAL
from tfx_estimator.pipeline.platforms.vertex.executor import Executor
from tfx_estimator.pipeline.runners.compiling import compile_declaration

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(400)]

TWO = "{train: {strategy: multi_worker_mirrored, workers: 2}}"
SERVED = "{train: {strategy: parameter_server, workers: 2, ps: 1}}"


def _artifacts(run: Finished) -> dict[str, list[Any]]:
    path = str(run.workdir.path / "digits" / "metadata.sqlite")
    wanted = {"Examples": "examples", "Schema": "schema", "TransformGraph": "transform_graph"}
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(path)) as handle:
        kinds = {kind.id: kind for kind in handle.store.get_artifact_types()}
        found = {kinds[each.type_id].name: each for each in handle.store.get_artifacts()}
        return {key: [deserialize_artifact(kinds[found[name].type_id], found[name])] for name, key in wanted.items()}


@pytest.mark.parametrize(
    ("distribution", "replicas"),
    [
        ("{}", ["workerpool0-0"]),
        (TWO, ["workerpool0-0", "workerpool1-0"]),
        (TWO.replace("2", "3"), ["workerpool0-0", "workerpool1-0", "workerpool1-1"]),
        (f"{TWO[:-1]}, evaluator: true}}", ["workerpool0-0", "workerpool1-0", "workerpool2-0"]),
        (
            "{train: {strategy: parameter_server, workers: 2, ps: 1}}",
            ["workerpool0-0", "workerpool1-0", "workerpool2-0"],
        ),
    ],
    ids=["alone", "2-workers", "3-workers", "2-workers-and-an-evaluator", "2-workers-and-a-server"],
)
def test_the_replicas_train_one_model_and_return_its_metrics(digits_run, tmp_path, monkeypatch, distribution, replicas):
    # A batch divisible by three workers, and a checkpoint for an evaluator before the end.
    steps = ("trainer.train_steps=40", "trainer.save_checkpoints_steps=20", "trainer.global_batch_size=96")
    overrides = (*steps, f"trainer.distribution={distribution}")
    model, model_run = _train(digits_run, tmp_path, monkeypatch, *overrides)
    assert (Path(model.uri) / "Format-Serving" / "saved_model.pb").exists()
    assert '"dataset": "digits"' in model.get_string_custom_property("comparable")
    if "parameter_server" in distribution:
        assert model_run.get_float_custom_property("last_step") >= 40
    else:
        assert model_run.get_float_custom_property("last_step") == 40
    assert model_run.get_float_custom_property("train_seconds") > 0
    logs = tmp_path / "step" / "custom_job" / "logs"
    assert sorted(path.stem for path in logs.iterdir()) == replicas
    assert list(Path(model_run.uri).glob("model.ckpt-*.index"))
    assert {path.suffix for path in (tmp_path / "home" / "training").iterdir()} == {".moved"}


def _train(digits_run: Finished, folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> tuple[Any, Any]:
    """Executes the compiled step on this machine; returns the model and the model run."""
    declared = (*COMMON, *OF_TARGET[VERTEX], *overrides, "deploy.vertex={}")
    step = read_steps(compile_declaration(load("digits", declared, VERTEX), VERTEX).text, VERTEX)["Trainer"]
    assert step.executor == f"{Executor.__module__}.Executor"
    trained = outputs(folder / "step")
    monkeypatch.setenv(REHEARSAL, "1")
    monkeypatch.setenv("TMPDIR", str(folder))
    Executor().Do(_artifacts(digits_run), trained, {**step.properties, "pipeline_home": str(folder / "home")})
    return trained["model"][0], trained["model_run"][0]


def _kill(pool: int, training: Path, killed: threading.Event) -> None:
    """Kills a replica after a checkpoint."""
    while not killed.wait(0.05):
        if list(training.glob("*/model.ckpt-[1-9]*.index")):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    place = json.loads(process.environ().get("CLUSTER_SPEC", "{}")).get("task", {}).get("type")
                    if REPLICA in process.cmdline() and place == f"workerpool{pool}":
                        process.kill()
                        killed.set()


@pytest.mark.parametrize("pool", [0, 1], ids=["chief", "worker"])
def test_a_killed_replica_causes_a_restart_and_loses_no_step(digits_run, tmp_path, monkeypatch, pool):
    killed = threading.Event()
    killer = threading.Thread(target=_kill, args=(pool, tmp_path / "home" / "training", killed))
    killer.start()
    try:
        overrides = (f"trainer.distribution={TWO}", "trainer.save_checkpoints_steps=100")
        _, model_run = _train(digits_run, tmp_path, monkeypatch, *overrides)
        assert killed.is_set()
    finally:
        killed.set()
        killer.join()
    assert model_run.get_float_custom_property("restarts") == 1
    assert model_run.get_float_custom_property("first_step") >= 100
    assert model_run.get_float_custom_property("last_step") == 600
    (restart,) = json.loads(model_run.get_string_custom_property("history"))
    assert f"the replica workerpool{pool}-0 ended with -9" in restart["cause"]
    assert {path.suffix for path in (tmp_path / "home" / "training").iterdir()} == {".moved"}


def test_a_pipeline_whose_trainer_is_a_custom_job_is_as_accurate_as_the_local_cluster(workdir, tmp_path):
    distribution = f"trainer.distribution={TWO}"
    rehearsal = Rehearsal(tmp_path)
    rehearsal.compile("digits", distribution, "deploy.vertex={}")
    results = rehearsal.execute("--require-blessing")
    workdir.run("digits", "--set", distribution)
    local = workdir.summary("digits")
    assert results["accuracy"] == pytest.approx(local["accuracy"], abs=1e-4)
    assert results["training"]["last_step"] == local["training"]["last_step"] == 600
    assert {*states_of(results).values()} == {"ran", "resolved"}
