"""`auto` in a declaration, to the end of a run: the dense network of Keras's guide on the whole MNIST."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

STEPS = 400


def _losses(model_run):
    """By step."""
    import tensorflow as tf

    found = {}
    for file in sorted(Path(model_run).glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                if value.tag == "loss":
                    found[event.step] = value.simple_value
    return found


@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_a_dense_network_trains_in_the_way_that_a_trial_found(workdir, real_data_dir, tmp_path, path):
    (tmp_path / "networks.py").write_text((ROOT / "tests" / "bench" / "networks.py").read_text())
    changed = {
        "data.data_dir": real_data_dir,
        "trainer.path": path,
        "trainer.model": "networks:dense",
        "trainer.train_steps": STEPS,
        "trainer.log_every_steps": 50,
        # Not of Adam, whose division makes much of a rounding.
        "trainer.optimizer.learning_rate": 0.01,
        "evaluator.min_accuracy": 0.85,
    }
    declared = [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
    workdir.run("mnist", *declared, cwd=tmp_path)
    plain = workdir.summary("mnist")
    said = workdir.run("mnist", *declared, "--set", "trainer.xla=auto", "--set", "trainer.precision=auto", cwd=tmp_path)
    found = workdir.summary("mnist")
    assert {each["node"]: each["state"] for each in found["components"]}["Transform"] == "cached"
    # The decision is said, with what was measured, and is what was trained with.
    verdict = json.loads((Path(found["model_run"]) / "speed_trial.json").read_text())
    print(verdict["text"], plain["training"], found["training"])
    assert found["decided"] == verdict["text"]
    assert " ".join(verdict["text"].split()[:6]) in " ".join(said.split())
    way = verdict["way"]
    assert verdict["text"].startswith(
        f"precision {way['precision']} and xla {str(way['xla']).lower()}, after a trial: float32 "
    )
    # Never slower than the plain way, which is among those that were tried.
    name = f"{way['precision']} with XLA" if way["xla"] else way["precision"]
    assert verdict["measured"]["float32"]["gain"] == 1.0
    assert verdict["measured"][name]["gain"] >= 1.0
    assert plain["blessed"]
    assert found["blessed"]
    if way["precision"] == "float32":
        assert len(losses := _losses(plain["model_run"])) > 5
        assert _losses(found["model_run"]) == pytest.approx(losses, abs=1e-5)
    assert found["accuracy"] == pytest.approx(plain["accuracy"], abs=1e-3 if way["precision"] == "float32" else 0.003)
