"""An Estimator's run becomes a Keras one by the command line, and goes on."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.conftest import ForkedWorkdir
from tests.stack import needs_keras_3

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_run_of_epochs_goes_on_in_keras_from_its_last_step(digits_run, forks, tmp_path):
    workdir, converted = ForkedWorkdir(tmp_path / "runs", forks), tmp_path / "converted"
    shutil.copytree(digits_run.workdir.path, workdir.path)
    workdir.run("digits", "--set", "trainer.train_steps=null", "--set", "trainer.train_epochs=1")
    pid = forks.start(["convert", str(workdir.path / "digits"), "--output", str(converted)])
    assert forks.wait(pid) == 0, forks.said
    assert "compared      359 evaluation examples: 0 with another class" in forks.said
    proof = json.loads((converted / "proof.json").read_text())
    assert proof["holds"]
    assert set(proof["logits"]) == {"estimator", "exported model"}
    assert max(proof["next_step"].values()) <= 1e-6
    begins = f"{{checkpoint: {converted}/checkpoints, resume: true}}"
    step = json.loads((converted / "mapping.json").read_text())["step"]
    workdir.run("digits", "--set", "trainer.path=keras", "--set", f"trainer.warm_start={begins}", *_steps(step + 40))
    training = workdir.summary("digits")["training"]
    assert (training["first_step"], training["last_step"]) == (step, step + 40)
    assert "raise trainer.train_steps" in workdir.run(
        "digits", "--set", "trainer.path=keras", "--set", f"trainer.warm_start={begins}", *_steps(step), code=2
    )


@needs_keras_3
def test_an_ended_run_becomes_one_of_keras_3_in_a_fresh_process(digits_run, forks, tmp_path):
    converted = tmp_path / "converted"
    home = str(digits_run.workdir.path / "digits")
    pid = forks.start(["convert", home, "--to", "keras3", "--output", str(converted)])
    assert forks.wait(pid) == 0, forks.said
    proof = json.loads((converted / "proof.json").read_text())
    assert proof["holds"]
    assert set(proof["logits"]) == {"estimator", "exported model", "keras 3"}
    assert {"weight of keras 3", "slot of keras 3"} <= set(proof["next_step"])
    compile((converted / "training.py").read_text(), "training.py", "exec")


def _steps(count: int) -> tuple[str, str]:
    return "--set", f"trainer.train_steps={count}"
