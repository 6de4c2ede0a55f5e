"""`auto` in a declaration, to the end of a run: the dense network of Keras's guide on the whole MNIST."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.equivalence.conftest import largest_difference, read_weights
from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

STEPS = 400
WAYS = ("float32", "mixed_bfloat16", "float32 with XLA", "mixed_bfloat16 with XLA")


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


def _log(model_run, name):
    (file,) = (Path(model_run) / "logs").glob(f"{name}.attempt-*.log")
    return file.read_text()


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
    said = workdir.run("mnist", *declared, "--set", "trainer.xla=auto", "--set", "trainer.precision=auto", cwd=tmp_path)
    found = workdir.summary("mnist")
    # The decision is said, with what was measured.
    folder = Path(found["model_run"])
    verdict = json.loads((folder / "speed_trial.json").read_text())
    print(verdict["text"], found["training"])
    assert found["decided"] == verdict["text"]
    assert " ".join(verdict["text"].split()[:6]) in " ".join(said.split())
    way = verdict["way"]
    assert verdict["text"].startswith(
        f"precision {way['precision']} and xla {str(way['xla']).lower()}, after a trial: float32 "
    )
    # It follows from the table: the way that gains most, and the plain one where none gains enough.
    table, name = verdict["measured"], f"{way['precision']} with XLA" if way["xla"] else way["precision"]
    assert all((f"{each} left out: " in verdict["text"]) == (each not in table) for each in WAYS)
    best = max(table, key=lambda each: table[each]["gain"])
    assert name == (best if table[best]["gain"] >= 1.05 else "float32")
    plain = table["float32"]
    assert plain["gain"] == 1.0
    for each in table.values():
        faster = each["examples_per_second"] / plain["examples_per_second"]
        cheaper = plain["cpu_micros_per_example"] / each["cpu_micros_per_example"]
        # Medians of quotients are near the quotient of medians; the rest is what else ran meanwhile.
        assert each["gain"] == pytest.approx(min(faster, cheaper), rel=0.5)
    # The training is that of the same declaration with what was decided written by hand.
    assert ("Compiled cluster using XLA" in _log(folder, "chief-0")) == way["xla"]
    by_hand = [word for key, value in way.items() for word in ("--set", f"trainer.{key}={value}")]
    workdir.run("mnist", *declared, *by_hand, cwd=tmp_path)
    same = workdir.summary("mnist")
    assert workdir.states("mnist")["Transform"] == "cached"
    assert workdir.states("mnist")["Trainer"] != "cached"
    assert same["decided"] is None
    assert len(losses := _losses(same["model_run"])) > 5
    assert _losses(folder) == pytest.approx(losses, abs=1e-5)
    assert largest_difference(read_weights(str(folder)), read_weights(same["model_run"])) < 1e-5
    assert found["blessed"]
    assert found["accuracy"] == pytest.approx(same["accuracy"], abs=1e-4)
