"""The example notebook, executed in a kernel: one line of progress per call, results as tables, a plot."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import Finished
from tests.examples import copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_notebook_runs_plots_compares_and_predicts(digits_run: Finished, tmp_path) -> None:
    nbformat = pytest.importorskip("nbformat")
    preprocessors = pytest.importorskip("nbconvert.preprocessors")
    folder = copy_example("notebook", tmp_path)
    (folder / "runs").symlink_to(digits_run.workdir.path)
    notebook = nbformat.read(folder / "digits.ipynb", as_version=4)
    kernel = preprocessors.ExecutePreprocessor(timeout=300)
    kernel.preprocess(notebook, {"metadata": {"path": str(folder)}})
    outputs = {cell["id"]: cell["outputs"] for cell in notebook.cells if cell.cell_type == "code"}
    assert outputs["import"] == []

    line, shown = outputs["first"]
    assert re.fullmatch(r"run: done in \d+ s", line["data"]["text/plain"])
    accuracy = f"accuracy {digits_run.summary['accuracy']:.4f}"
    assert shown["data"]["text/plain"].startswith(f"RunResult(digits: blessed, {accuracy}")
    assert "<td>Trainer</td><td>cached</td>" in shown["data"]["text/html"]
    assert accuracy in shown["data"]["text/html"]
    (plot,) = outputs["curves"]
    assert len(plot["data"]["image/png"]) > 5000

    line, shown = outputs["second"]
    assert line["data"]["text/plain"].startswith("run: done in")
    why = re.search(r"<td>Trainer</td><td>ran</td><td>[\d.]+ s</td><td>(.*?)</td>", shown["data"]["text/html"])
    assert "trainer.train_steps 600 → 100" in why[1]
    (frame,) = outputs["table"]
    assert f"{digits_run.summary['accuracy']:.6f}" in frame["data"]["text/plain"]

    line, shown = outputs["both"]
    assert line["data"]["text/plain"].startswith("compare: done in")
    assert shown["data"]["text/html"].count("<tr>") == 3
    assert "McNemar" in shown["data"]["text/html"]
    line, shown = outputs["predict"]
    assert line["data"]["text/plain"].startswith("predict: done in")
    for digit in range(3):
        assert f"<td>images/{digit}.png</td><td>{digit}</td>" in shown["data"]["text/html"]
    line, message = outputs["wrong"]
    assert line["data"]["text/plain"].startswith("run: ended after")
    assert "did you mean" in message["text"]
