"""A compiled pipeline executed with everything in a bucket, and its custom job with two replicas."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tests.store.conftest import Store, serving
from tests.store.front import BUCKET
from tests.waiting import wait_until
from tfx_estimator.components.trainer.settings import OPERATION_KEY
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, VERTEX

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = (sys.executable, "-m", "tfx_estimator")
TWO = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 2}}"
JOB = (TWO, "deploy.vertex={}")
ROOT, HOME = f"gs://{BUCKET}/rehearsal", "rehearsal/digits"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _compile(store: Store, folder: Path, *declared: str, source: str = "digits", target: str = VERTEX) -> Path:
    file = folder / f"compiled.{'json' if target == VERTEX else 'yaml'}"
    declarations = (*COMMON, *OF_TARGET[target], f"data.data_dir=gs://{BUCKET}/tfds", *declared)
    overrides = [word for each in declarations for word in ("--set", each)]
    store.run(*PROGRAM, "compile", source, "--target", target, "--output", str(file), *overrides)
    return file


def _execute(store: Store, file: Path, folder: Path) -> dict[str, Any]:
    """Executes a file in the bucket; returns the summary."""
    with (folder / "summary").open("w+") as stdout, (folder / "stderr").open("w") as stderr:
        command = (*PROGRAM, "execute", str(file), "--root", ROOT, "--require-blessing", "--json")
        run = store.popen(*command, stdout=stdout, stderr=stderr)
        try:
            code = run.wait(800)
        finally:
            run.kill()
            run.wait()
        assert code == 0, (folder / "stderr").read_text()
        stdout.seek(0)
        return json.load(stdout)


def _states(results: dict[str, Any], state: str) -> set[str]:
    return {each["node"] for each in results["components"] if each["state"] == state}


def _folders(store: Store, place: str) -> set[str]:
    return {name.removeprefix(f"{HOME}/{place}/").split("/")[0] for name in store.names(f"{HOME}/{place}/")} - {""}


@pytest.mark.parametrize("job", [False, True], ids=["in-the-step", "custom-job"])
def test_digits_from_the_compiled_file(tmp_path, binary, job):
    (tmp_path / "networks.py").write_text(
        "import tensorflow as tf\n\n\ndef small(num_classes):\n    layers = tf.keras.layers\n"
        '    return tf.keras.Sequential([layers.Flatten(), layers.Dense(64, "relu"), layers.Dense(num_classes)])\n'
    )
    (tmp_path / "mine.yaml").write_text(
        'name: digits\ndata: {dataset: digits, shards: 2, splits: {train: "train[:80%]", eval: "train[80%:]"}}\n'
        'trainer: {model: "networks:small", train_steps: 300, global_batch_size: 64}\nevaluator: {min_accuracy: 0.8}\n'
    )
    with serving(tmp_path, binary) as store:
        file = _compile(store, tmp_path, *(JOB if job else ()), source=str(tmp_path / "mine.yaml"))
        first = _execute(store, file, tmp_path)
        assert first["training"]["last_step"] == 300
        assert first["accuracy"] >= 0.8
        assert first["pushed"].startswith(f"gs://{BUCKET}/{HOME}/serving/")
        assert len(_folders(store, "serving")) == 1
        assert len(_folders(store, "modules")) == 1
        # A completed training leaves only the note of its move.
        assert {os.path.splitext(name)[1] for name in _folders(store, "training")} == {".moved"}
        second = _execute(store, file, tmp_path)
        # See tests/e2e/test_execute.py: TFX's own resolver finds the candidate itself.
        assert _states(second, "ran") == {"Evaluator", "Pusher"}
        assert second["accuracy"] == first["accuracy"]
        assert len(_folders(store, "serving")) == 1


def test_kubeflow_pipelines_2_has_no_objects_for_folders(tmp_path, binary):
    with serving(tmp_path, binary) as store:
        file = _compile(store, tmp_path, "trainer.train_steps=300", target=KUBEFLOW)
        first = _execute(store, file, tmp_path)
        assert first["training"]["last_step"] == 300
        # .../STEP_1/OUTPUT/...: its launcher downloads these for the next steps.
        start = f"{HOME}/artifacts/local/digits-1/"
        below = [name.removeprefix(start).split("/", 2) for name in store.names(start)]
        inside = [each for each in below if len(each) == 3]
        found = {(step, output) for step, output, _ in inside}
        assert {("TfdsExampleGen_1", "examples"), ("Trainer_1", "model"), ("Transform_1", "transform_graph")} <= found
        assert [each for each in inside if each[2].endswith("/") or not each[2]] == []
        assert len(_folders(store, "serving")) == 1
        second = _execute(store, file, tmp_path)
        assert _states(second, "ran") == {"BaselineFinder"}
        assert second["accuracy"] == first["accuracy"]


def test_a_training_in_a_volume_is_published_in_the_bucket(tmp_path, binary):
    """Like in the pods of a TFJob that a step starts, here with local tasks: see tests/e2e."""
    (volume := tmp_path / "volume").mkdir()
    with serving(tmp_path, binary) as store:
        file = _compile(store, tmp_path, TWO, "trainer.train_steps=300", target=KUBEFLOW)
        spec, platform = yaml.safe_load_all(file.read_text())
        runtime = spec["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"][OPERATION_KEY]["runtimeValue"]
        runtime["constant"] = json.dumps({**json.loads(runtime["constant"]), "training_root": str(volume)})
        file.write_text(yaml.safe_dump_all([spec, platform]))
        results = _execute(store, file, tmp_path)
        assert results["training"]["last_step"] == 300
        assert results["accuracy"] >= 0.8
        assert {path.suffix for path in volume.iterdir()} == {".moved"}
        assert not store.names(f"{HOME}/training/")
        kept = store.names(results["model_run"].removeprefix(f"gs://{BUCKET}/"))
        assert [name for name in kept if name.endswith("/model.ckpt-300.index")]
        assert len(_folders(store, "serving")) == 1


@pytest.mark.parametrize("job", [False, True], ids=["in-the-step", "custom-job"])
def test_a_store_that_fails_now_and_then(tmp_path, binary, job):
    with serving(tmp_path, binary, share=0.01, cut="model.ckpt") as store:
        results = _execute(store, _compile(store, tmp_path, *(JOB if job else ())), tmp_path)
        faults = store.faults
        assert len([line for line in faults if line.startswith("503")]) >= 5
        (cut,) = [line for line in faults if line.startswith("cut")]
        assert f"{HOME}/training/" in unquote(cut)
        assert results["training"]["last_step"] == 600
        assert results["accuracy"] >= 0.97
        # One whole version, and no draft.
        (version,) = _folders(store, "serving")
        assert results["pushed"] == f"gs://{BUCKET}/{HOME}/serving/{version}"
        assert f"{HOME}/serving/{version}/saved_model.pb" in store.names(f"{HOME}/serving/")
        assert {os.path.splitext(name)[1] for name in _folders(store, "training")} == {".moved"}


def test_of_two_machines_that_execute_the_same_file_one_is_refused(tmp_path, binary):
    with serving(tmp_path, binary) as store, contextlib.ExitStack() as stack:
        command = (*PROGRAM, "execute", str(_compile(store, tmp_path)), "--root", ROOT)
        logs, runs = [tmp_path / "one.log", tmp_path / "other.log"], []
        for log in logs:
            # Like on two machines, which share no lock.
            state = ("env", f"XDG_STATE_HOME={log.with_suffix('.state')}")
            output = stack.enter_context(log.open("w"))
            runs.append(store.popen(*state, *command, stdout=output, stderr=output))
            stack.callback(runs[-1].wait)
            stack.callback(runs[-1].kill)
        wait_until(
            lambda: any(run.poll() is not None for run in runs),
            lambda: f"the end of one of the two: {[log.read_text() for log in logs]}",
            200,
            every=0.5,
        )
        texts = [log.read_text() for log in logs]
        (refused,) = [place for place, run in enumerate(runs) if run.poll() is not None]
        assert runs[refused].returncode == 6, texts
        assert f"another machine is using gs://{BUCKET}/{HOME}" in texts[refused]
        assert "name another --root" in texts[refused]


def test_the_replicas_of_a_cancelled_job_stop_at_one_step_and_the_next_job_resumes_there(tmp_path, binary):
    log, steps = tmp_path / "execute.log", ("trainer.train_steps=2000", "trainer.save_checkpoints_steps=250")
    with serving(tmp_path, binary) as store:
        file = _compile(store, tmp_path, *JOB, *steps)
        with log.open("w") as output:
            run = store.popen(*PROGRAM, "execute", str(file), "--root", ROOT, stdout=output, stderr=output)
        try:

            def is_under_way() -> bool:
                assert run.poll() is None, log.read_text()
                return any(name.endswith("/model.ckpt-250.index") for name in store.names(f"{HOME}/training/"))

            wait_until(is_under_way, lambda: f"the checkpoint of step 250: {log.read_text()}", 400, every=0.5)
            run.terminate()
            assert run.wait(120) == 143, log.read_text()
        finally:
            run.kill()
            run.wait()
        names = store.names(f"{HOME}/training/")
        (word,) = [name for name in names if name.endswith("/stop.json")]
        step = json.loads(store.read(word))["step"]
        assert word.replace("stop.json", f"model.ckpt-{step}.index") in names, names
        resumed = _execute(store, file, tmp_path)
        assert (resumed["training"]["first_step"], resumed["training"]["last_step"]) == (step, 2000)
        assert not [name for name in store.names(HOME) if name.endswith("/stop.json")]


def test_a_custom_job_stops_early_after_evaluations_without_improvement(tmp_path, binary):
    # No later evaluation improves by that much.
    rule = "trainer.early_stopping={metric: average_loss, patience: 2, min_delta: 100}"
    distribution = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 2}, evaluator: true}"
    steps = ("trainer.train_steps=50000", "trainer.save_checkpoints_steps=200")
    with serving(tmp_path, binary) as store:
        file = _compile(store, tmp_path, distribution, "deploy.vertex={}", *steps, rule)
        results = _execute(store, file, tmp_path)
        last = results["training"]["last_step"]
        # Three evaluations, of existing checkpoints.
        assert 600 <= last < 50000
        assert results["stopped_early"].startswith(f"at step {last:,.0f} of 50,000: average_loss has not improved on ")
        assert results["stopped_early"].endswith("for 2 evaluations")
        assert results["restarts"] == []
        assert results["accuracy"] >= 0.9
        assert len(_folders(store, "serving")) == 1
        # The chief's message to the others was removed with it.
        assert {os.path.splitext(name)[1] for name in _folders(store, "training")} == {".moved"}
