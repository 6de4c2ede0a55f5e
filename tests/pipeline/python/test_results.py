"""Results of the Python functions, made of the values that verbs write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.experiments.bench.test_results import comparison, measurement
from tests.pipeline.experiments.compare.test_results import compared
from tfx_estimator import BenchResult, CompareResult, DataNotFoundError, DeclarationError, RunResult, validate


def written(found: Any) -> Any:
    return json.loads(json.dumps(found.to_dict()))


def test_a_comparison_is_a_table_of_its_candidates() -> None:
    found = compared([1, 2, 3], [1])
    result = CompareResult("there", written(found))
    assert (result.conclusions, result.spread) == (found.conclusions(), found.spread)
    table = result.to_dataframe().set_index("name")
    base, other = found.results
    assert list(table.index) == [base.name, other.name]
    assert table.loc[other.name, "accuracy"] == other.accuracy.value
    assert table.loc[other.name, "difference"] == found.pairs[0].accuracy.value > 0
    assert table.loc[other.name, "p"] == found.pairs[0].p
    assert table.loc[[base.name], "p"].isna().all()
    assert f"<td>{other.name}</td><td>{other.accuracy.value:.4f}</td>" in result._repr_html_()
    assert found.conclusions()[0] in repr(result)


def test_a_bench_is_a_table_of_its_strategies() -> None:
    found = comparison(measurement("one_core", 1, 100.0), measurement("mirrored:2", 1, 150.0))
    result = BenchResult("there", written(found))
    table = result.to_dataframe().set_index("strategy")
    assert table.loc["mirrored:2", "speedup"] == 1.5
    assert "<td>mirrored:2</td><td>150" in result._repr_html_()
    assert repr(result) == f"BenchResult({found.answer()})"


def test_a_run_without_evaluation_or_training_says_so() -> None:
    result = RunResult("there", {"name": "own", "seconds": 1.5, "model": "trained", "metrics": {}, "accuracy": None})
    assert (result.metrics, result.blessed, result.model_uri, result.components) == ({}, None, "trained", [])
    assert repr(result) == "RunResult(own: not evaluated, in 2 s)"
    with pytest.raises(DataNotFoundError, match="TensorBoard"):
        result.curves()
    shown = RunResult("there", {"name": "<own>", "warnings": [{"component": "Trainer", "text": "a < b"}]})._repr_html_()
    assert "&lt;own&gt;" in shown
    assert "a &lt; b" in shown


def test_a_checked_declaration_is_a_table_of_what_is_not_default() -> None:
    checked = validate("digits", {"trainer.train_steps": 70, "trainer.augment": ["random_flip"]})
    line = "digits: digits -> mnist_cnn, 70 steps of 64, one_device, blessed from accuracy 0.95"
    assert repr(checked).startswith(f"Checked({line}")
    assert len(repr(checked)) < 500
    shown = checked._repr_html_()
    assert line.replace(">", "&gt;") in shown
    assert "<td>trainer.train_steps</td><td>70</td><td>--set</td>" in shown
    assert "<td>trainer.model</td><td>mnist_cnn</td><td>preset digits:" in shown
    assert "random_flip" in shown
    assert "trainer.tensorboard" not in shown


def test_results_are_opened_from_their_folders(tmp_path: Path) -> None:
    for time, accuracy in (("20261121-120000", 0.5), ("20261122-120000", 0.75)):
        (logs := tmp_path / "own" / "logs" / time).mkdir(parents=True)
        (logs / "declaration.yaml").write_text("name: own\n")
        summary = {"name": "own", "started": f"{time[:4]}-11-{time[6:8]}T12:00:00+00:00", "accuracy": accuracy}
        (logs / "summary.json").write_text(json.dumps(summary))
    first = logs.with_name("20261121-120000")
    assert (RunResult.of(first).logs, RunResult.of(first).metrics) == (str(first), {"accuracy": 0.5})
    assert RunResult.of(str(tmp_path / "own")).metrics == {"accuracy": 0.75}
    with pytest.raises(DeclarationError, match="there is no such folder"):
        RunResult.of(tmp_path / "none")

    found = compared([1, 2, 3], [1])
    (tmp_path / "compare.json").write_text(json.dumps(found.to_dict()))
    result = CompareResult.of(tmp_path)
    assert (result.folder, result.conclusions, result.spread) == (str(tmp_path), found.conclusions(), found.spread)
    with pytest.raises(DeclarationError, match="no comparison can be read"):
        CompareResult.of(tmp_path / "own")
