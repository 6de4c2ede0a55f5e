"""A compiled pipeline, executed from its file with everything in a bucket, and a custom job of two replicas in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tests.store.conftest import Store, serving
from tests.store.front import BUCKET
from tfx_estimator.pipeline.targets import VERTEX

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = (sys.executable, "-m", "tfx_estimator")
TWO = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 2}}"
DECLARED = (*COMMON, *OF_TARGET[VERTEX], f"data.data_dir=gs://{BUCKET}/tfds")
HOME = "rehearsal/digits"


def _execute(store: Store, file: Path, folder: Path) -> dict[str, Any]:
    """Executes a file in the bucket; returns the summary."""
    root = f"gs://{BUCKET}/rehearsal"
    with (folder / "summary").open("w+") as told, (folder / "said").open("w") as said:
        command = (*PROGRAM, "execute", str(file), "--root", root, "--require-blessing", "--json")
        run = store.popen(*command, stdout=told, stderr=said)
        try:
            code = run.wait(800)
        finally:
            run.kill()
            run.wait()
        assert code == 0, (folder / "said").read_text()
        told.seek(0)
        return json.load(told)


def _states(results: dict[str, Any], state: str) -> set[str]:
    return {each["node"] for each in results["components"] if each["state"] == state}


def _folders(store: Store, place: str) -> set[str]:
    """The folders that a place holds."""
    return {name.removeprefix(f"{HOME}/{place}/").split("/")[0] for name in store.names(f"{HOME}/{place}/")} - {""}


@pytest.mark.parametrize("job", [False, True], ids=["in-the-step", "custom-job"])
def test_digits_from_the_compiled_file(tmp_path, binary, monkeypatch, job):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "networks.py").write_text(
        "import tensorflow as tf\n\n\ndef small(num_classes):\n    layers = tf.keras.layers\n"
        '    return tf.keras.Sequential([layers.Flatten(), layers.Dense(64, "relu"), layers.Dense(num_classes)])\n'
    )
    (tmp_path / "mine.yaml").write_text(
        'name: digits\ndata: {dataset: digits, shards: 2, splits: {train: "train[:80%]", eval: "train[80%:]"}}\n'
        'trainer: {model: "networks:small", train_steps: 300, global_batch_size: 64}\nevaluator: {min_accuracy: 0.8}\n'
    )
    declared = (*DECLARED, *((TWO, "deploy.vertex={}") if job else ()))
    overrides = [word for each in declared for word in ("--set", each)]
    file = tmp_path / "mine.json"
    with serving(tmp_path, binary) as store:
        source = ("compile", str(tmp_path / "mine.yaml"), "--target", VERTEX, "--output", str(file))
        store.run(*PROGRAM, *source, *overrides)
        first = _execute(store, file, tmp_path)
        assert first["training"]["last_step"] == 300
        assert first["accuracy"] >= 0.8
        assert first["pushed"].startswith(f"gs://{BUCKET}/{HOME}/serving/")
        assert len(_folders(store, "serving")) == 1
        assert len(_folders(store, "modules")) == 1
        # What is done is no folder to go on from.
        assert _folders(store, "training") == set()
        second = _execute(store, file, tmp_path)
        # See tests/e2e/test_execute.py: TFX's own resolver finds the model that is the candidate.
        assert _states(second, "ran") == {"Evaluator", "Pusher"}
        assert second["accuracy"] == first["accuracy"]
        assert len(_folders(store, "serving")) == 1
