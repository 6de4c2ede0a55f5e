"""What the pods of a training in a TFJob are given of the user's own code."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.platforms.tfjob.launcher import modules_of

pytestmark = pytest.mark.unit

MODULES = {
    "own/train.py": "import common\nfrom shapes.round import CIRCLE\n\n\ndef run_fn(fn_args):\n    pass\n",
    "own/beside.py": "",
    "own/shapes/__init__.py": "",
    "own/shapes/round.py": "CIRCLE = 3.14\n",
    "common.py": "WIDTH = 32\n",
}


def test_what_a_module_file_imports_travels_to_the_pods(tmp_path, monkeypatch):
    project = tmp_path / "project"
    for name, text in MODULES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: mnist}\ntrainer: {module_file: own/train.py, train_steps: 9}\n"
    )
    loaded = load(project / "mine.yaml")
    # As a run does.
    monkeypatch.syspath_prepend(str(project))
    packed = modules_of(loaded.declaration.trainer)
    assert packed is not None
    assert packed.modules == ("common", "shapes", "shapes.round", "train")
    with zipfile.ZipFile(io.BytesIO(packed.data)) as wheel:
        wheel.extractall(tmp_path / "pod")
    code = "import train; print(train.CIRCLE, train.common.WIDTH)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "pod", capture_output=True, text=True)
    assert (ran.stdout.split(), ran.stderr) == (["3.14", "32"], "")


def test_in_a_step_of_a_compiled_pipeline_a_module_file_is_what_has_travelled_there(tmp_path, monkeypatch):
    (tmp_path / "in_the_step.py").write_text("import beside_it\n\n\ndef run_fn(fn_args):\n    pass\n")
    (tmp_path / "beside_it.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    section = TrainerSection.parse_obj({"model": None, "module_file": "in_the_step.py", "train_steps": 9})
    packed = modules_of(section, "in_the_step.run_fn")
    assert packed is not None
    assert packed.modules == ("beside_it", "in_the_step")


def test_nothing_travels_of_what_is_built_in():
    assert modules_of(load("mnist").declaration.trainer) is None
