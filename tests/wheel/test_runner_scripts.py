"""TFX's own command line accepts the scripts that `copy` writes: from a wheel, in a user's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.pipeline.runners.deployed import as_sections
from tfx_estimator.pipeline.platforms.registry import VERTEX

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

NETWORK = """\
import tensorflow as tf

def small(num_classes):
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Flatten(), layers.Dense({units}, "relu"), layers.Dense(num_classes)])
"""
DECLARATION = {
    "name": "mine",
    "data": {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}},
    "trainer": {"model": "networks:small", "train_steps": 100},
    "evaluator": {"min_accuracy": 0.2},
}


class Project:
    def __init__(self, folder: Path, environment, engine: str) -> None:
        self.folder, self._environment, self.engine = folder, environment, engine
        self.write(8)
        sections = {} if engine == "local" else as_sections(engine)
        (folder / "mine.yaml").write_text(yaml.safe_dump({**DECLARATION, **sections}))
        self.ours("copy", f"{engine}_runner", "runner.py")
        script = folder / "runner.py"
        script.write_text(script.read_text().replace('"digits"', '"mine.yaml"'))

    def write(self, units: int) -> None:
        (self.folder / "networks.py").write_text(NETWORK.replace("{units}", str(units)))

    def ours(self, *words: str) -> str:
        return self._environment.run("tfx-estimator", *words, cwd=self.folder)

    def tfx(self, *words: str, **environment: str) -> str:
        command = ("tfx", "pipeline", *words, "--engine", self.engine, "--pipeline_path", "runner.py")
        return self._environment.run(*command, cwd=self.folder, **environment)

    def compiled(self) -> str:
        self.ours("compile", "mine.yaml", "--target", self.engine, "--output", "wanted", "--force")
        return (self.folder / "wanted").read_text()


def test_vertex(environment, tmp_path):
    project = Project(tmp_path, environment, VERTEX)
    assert "compiled successfully" in project.tfx("compile")
    assert (tmp_path / "mine.json").read_text() == (first := project.compiled())
    home = {"VERTEX_HOME": str(tmp_path / "vertex")}
    assert "created successfully" in project.tfx("create", **home)
    kept = tmp_path / "vertex" / "mine" / "pipeline.json"
    assert kept.read_text() == first
    project.write(9)
    assert "updated successfully" in project.tfx("update", **home)
    assert kept.read_text() == project.compiled() != first
    assert json.loads(kept.read_text())["displayName"] == "mine"
    assert len(list(tmp_path.glob("*.whl"))) == 2


def test_local(environment, tmp_path):
    project = Project(tmp_path, environment, "local")
    home = {"LOCAL_HOME": str(tmp_path / "tfx")}
    assert "compiled successfully" in project.tfx("compile", **home)
    assert 'Pipeline "mine" created successfully' in project.tfx("create", **home)
    project.write(9)
    assert 'Pipeline "mine" updated successfully' in project.tfx("update", **home)
    run = ("tfx", "run", "create", "--engine", "local", "--pipeline_name", "mine")
    environment.run(*run, cwd=tmp_path, **home)
    (pushed,) = (tmp_path / "runs" / "mine" / "serving").iterdir()
    assert (pushed / "saved_model.pb").exists()
