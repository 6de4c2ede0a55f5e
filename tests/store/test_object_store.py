"""A whole run with data, work folder and destination in a bucket; with faults of the store; killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, IMAGE
from tests.store.conftest import Store, serving
from tests.store.front import BUCKET
from tests.waiting import wait_until
from tfx_estimator.pipeline.platforms.training_jobs.compile import CONFIG_FOLDER

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

PLACES = (
    "--workdir",
    f"gs://{BUCKET}/runs",
    "--set",
    f"data.data_dir=gs://{BUCKET}/tfds",
    "--set",
    f"pusher.destination=gs://{BUCKET}/served",
)
RUN = (sys.executable, "-m", "tfx_estimator", "run", "digits", "--no-dry-run", "--require-blessing", *PLACES)
TRAINING = "runs/digits/artifacts/Trainer/training/"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local folder of a run for files that a bucket cannot hold."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "tfx-estimator" / "gs" / BUCKET / "runs" / "digits"


def summary(state: Path) -> dict[str, Any]:
    return json.loads(sorted((state / "logs").glob("*/summary.json"))[-1].read_text())


def states(state: Path) -> set[str]:
    return {each["state"] for each in summary(state)["components"]} - {"resolved"}


def pushed(store: Store) -> list[str]:
    """Returns the versions that can be served; checks that no draft is left."""
    names = store.names("served/")
    assert not [name for name in names if ".push-" in name]
    return sorted(name.split("/")[1] for name in names if name.endswith("/saved_model.pb"))


def test_everything_in_a_bucket(tmp_path, binary, state, monkeypatch):
    with serving(tmp_path, binary) as store:
        output = store.run(*RUN)
        first = summary(state)
        assert first["accuracy"] >= 0.97
        assert len(versions := pushed(store)) == 1
        assert f"gs://{BUCKET}/served/{versions[0]}" in output
        # Only files that a bucket cannot hold are local.
        assert {path.name for path in state.iterdir()} <= {"logs", "metadata.sqlite", "metadata.sqlite.stored", ".lock"}
        assert (sorted((state / "logs").glob("*/report.html"))[-1]).stat().st_size > 10_000
        # The bucket has no account, and no path or name of this machine.
        kept = store.read("runs/digits/metadata.sqlite")
        ours = (str(tmp_path), f"{Path.home()}/", sys.prefix, socket.gethostname(), "a-token-of-the-tests")
        assert [word for word in ours if len(word) > 3 and word.encode() in kept] == []
        # Again, like on another machine without any local state.
        store.run(*RUN)
        assert states(state) == {"cached"}
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        store.run(*RUN)
        assert states(tmp_path / "elsewhere" / state.relative_to(tmp_path / "state")) == {"cached"}
        assert pushed(store) == versions


def test_a_missing_bucket_is_reported(tmp_path, binary):
    with serving(tmp_path, binary) as store:
        elsewhere = ("--workdir", "gs://some-other-bucket/runs", "--set", f"data.data_dir={tmp_path}/tfds")
        output = store.run(*RUN[:-6], *elsewhere, code=6)
        assert "gs://some-other-bucket cannot be used: there is no such bucket" in output
        assert "gcloud auth application-default login" in output


@pytest.mark.parametrize(("name", "more"), [("compile", ("--output", "it.json")), ("submit", ("--dry-run",))])
def test_a_missing_bucket_of_data_is_reported(tmp_path, binary, name, more):
    options = ("deploy.project=example-project", "deploy.region=europe-west4", *COMMON)
    options += ("data.dataset=mnist", "data.splits=null", "data.data_dir=gs://some-other-bucket/tfds")
    more = tuple(str(tmp_path / each) if each.endswith(".json") else each for each in more)
    overrides = [word for each in options for word in ("--set", each)]
    command = (sys.executable, "-m", "tfx_estimator", name, "digits", "--target", "vertex", *more, *overrides)
    with serving(tmp_path, binary) as store:
        output = store.run(*command, code=6)
        assert "gs://some-other-bucket cannot be used: there is no such bucket" in output
        assert "Traceback" not in output


def test_a_store_that_fails_now_and_then(tmp_path, binary, state):
    with serving(tmp_path, binary, share=0.01, cut="model.ckpt") as store:
        store.run(*RUN, "--no-report")
        faults = store.faults
        assert len([line for line in faults if line.startswith("503")]) >= 5
        assert len([line for line in faults if line.startswith("cut")]) == 1
        assert summary(state)["accuracy"] >= 0.97
        assert len(pushed(store)) == 1


def test_killed_in_training_and_resumed(tmp_path, binary, state):
    with serving(tmp_path, binary) as store:
        # Frequent checkpoints and enough steps for a kill between two checkpoints.
        longer = ("--set", "trainer.train_steps=1500", "--set", "trainer.save_checkpoints_steps=100", "--no-report")
        _kill_between_checkpoints(store, tmp_path / "run.log", *RUN, *longer)
        store.run(*RUN, *longer)
        assert _resumed(state)["blessed"]
        assert len(pushed(store)) == 1


def test_the_only_pod_of_a_tfjob_is_killed_and_its_successor_resumes(tmp_path, binary, state, monkeypatch):
    places = (f"data.data_dir=gs://{BUCKET}/tfds", f"deploy.pipeline_root=gs://{BUCKET}/runs", f"deploy.image={IMAGE}")
    longer = ("trainer.train_steps=1500", "trainer.save_checkpoints_steps=100")
    overrides = [word for each in (*places, *longer) for word in ("--set", each)]
    file = tmp_path / "job.yaml"
    compiled = (sys.executable, "-m", "tfx_estimator", "compile", "digits", "--target", "tfjob", "--output", str(file))
    with serving(tmp_path, binary) as store:
        store.run(*compiled, *overrides)
        config_map, job = yaml.safe_load_all(file.read_text())
        declaration = tmp_path / "declaration.yaml"
        declaration.write_text(config_map["data"][declaration.name])
        (container,) = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        program, *arguments = container["command"]
        assert program == "tfx-estimator"
        here = [str(declaration) if each == f"{CONFIG_FOLDER}/declaration.yaml" else each for each in arguments]
        # The environment from the operator, which sets no TF_CONFIG for a single pod, and from the manifest.
        command = ("env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-m")
        command = (*command, "tfx_estimator", *here)
        _kill_between_checkpoints(store, tmp_path / "run.log", *command)
        # On another node, without the first one's local files.
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        store.run(*command)
        _resumed(tmp_path / "elsewhere" / state.relative_to(tmp_path / "state"))
        assert [name for name in store.names("runs/digits/serving/") if name.endswith("/saved_model.pb")]


def _resumed(state: Path) -> dict[str, Any]:
    """Returns the summary of a run that has resumed the training."""
    found = summary(state)
    assert {each["node"]: each["state"] for each in found["components"]}["TfdsExampleGen"] == "cached"
    assert found["training"]["first_step"] >= 200
    assert found["training"]["last_step"] == 1500
    return found


def _kill_between_checkpoints(store: Store, log: Path, *command: str) -> None:
    """Starts a run, and kills it and all its processes."""
    with log.open("w") as file:
        run = store.popen(*command, stdout=file, stderr=file)
    try:

        def is_between() -> bool:
            assert run.poll() is None, log.read_text()[-3000:]
            return any(name.endswith("model.ckpt-200.index") for name in store.names(TRAINING))

        wait_until(is_between, lambda: f"the checkpoint of step 200: {log.read_text()[-3000:]}", 400, every=0.5)
    finally:
        family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


COPY = """
import sys
from tfx.dsl.io import fileio
from tfx_estimator.components.tuner.training import copy_training

root = sys.argv[1]
for name in ("0001/training/eval/events", "0001/training/logs/log", "0001/training/model", "0002/training/old"):
    with fileio.open(f"{root}/{name}", "w") as file:
        file.write(name)
copy_training(f"{root}/0001/training", f"{root}/0002/training")
fileio.remove(f"{root}/0002/training/model")
copy_training(f"{root}/0001/training", f"{root}/0002/training")
"""


def test_a_trial_resumes_from_a_whole_copy_in_a_bucket(tmp_path, binary):
    with serving(tmp_path, binary) as store:
        store.run(sys.executable, "-c", COPY, f"gs://{BUCKET}/trials", seconds=120)
        # `old` is of an interrupted copy, and the trial itself has removed `model`.
        names = {name for name in store.names("trials/0002/") if not name.endswith("/")}
        assert names == {"trials/0002/training.copied", "trials/0002/training/eval/events"}
