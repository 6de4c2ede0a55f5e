"""TFX module files from a declaration, packaged and installed by TFX itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import copy_example, edit

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.long
def test_existing_module_files_run_unchanged(workdir, tmp_path: Path):
    folder = copy_example("module-file", tmp_path)
    declaration = str(folder / "module-file.yaml")
    workdir.run(declaration)
    results = workdir.summary("module-file")
    assert results["accuracy"] >= 0.7
    assert results["blessed"] is True
    assert results["training"]["last_step"] == 80
    assert (Path(results["pushed"]) / "saved_model.pb").exists()

    workdir.run(declaration)
    states = workdir.states("module-file")
    assert {state for node, state in states.items() if node != "BaselineResolver"} == {"cached"}

    edit(folder / "my_trainer.py", "0.01", "0.02")
    workdir.run(declaration)
    states = workdir.states("module-file")
    assert states["Transform"] == "cached"
    assert states["Trainer"] == states["Evaluator"] == states["Pusher"] == "ran"
