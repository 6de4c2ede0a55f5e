"""An Estimator's run becomes a Keras one by the command line, and goes on."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.conftest import ForkedWorkdir

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
    step, goes_on = json.loads((converted / "mapping.json").read_text())["step"], str(converted / "new.yaml")
    assert f"goes on by    tfx-estimator run {goes_on}" in forks.said
    workdir.run(goes_on)
    training = workdir.summary("digits")["training"]
    assert (training["first_step"], training["last_step"]) == (step, 2 * step)
    assert "raise trainer.train_steps" in workdir.run(goes_on, "--set", f"trainer.train_steps={step}", code=2)
