"""The examples, by the commands of their README; the others are run in test_cache, test_join and tests/wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import commands, copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", ["own-model-fn", "own-dataset", "image-folder"])
def test_an_example_pushes_a_blessed_model(name, tmp_path):
    folder = copy_example(name, tmp_path)
    workdir = Workdir(folder / "runs")
    for command in commands()[name]:
        if command[0] == "python":
            subprocess.run([sys.executable, *command[1:]], cwd=folder, check=True)
        else:
            assert command[:2] == ["tfx-estimator", "run"]
            workdir.run(*command[2:], cwd=folder)
    results = workdir.summary(name)
    assert results["blessed"] is True
    assert (Path(results["pushed"]) / "saved_model.pb").is_file()


@pytest.mark.long  # the module is trained in tests/e2e/others as well
def test_a_pipeline_of_ones_own_pushes_a_canned_estimator(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    (command,) = commands()["canned-estimator-csv"]
    assert command[0] == "python"
    done = subprocess.run([sys.executable, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    (pushed,) = (folder / "runs" / "serving").iterdir()
    assert (pushed / "saved_model.pb").is_file()
    tasks = {log.name.partition(".")[0] for log in (folder / "runs").rglob("*.log")}
    assert tasks == {"chief-0"}
