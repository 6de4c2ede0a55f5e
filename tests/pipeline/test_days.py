"""A table with new files each day: read once, a window of days, and what the rows of a day are checked against.

With TFX's own reading and statistics of CSV files, up to ExampleValidator.
"""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline

from tests.pipeline.making import NodeRuns
from tests.refusals import refused
from tfx_estimator.pipeline.base.errors import DataValidationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.table import check_kept
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.ingestion import ingest
from tfx_estimator.pipeline.runners.local import LocalRunner

pytestmark = pytest.mark.timeout(300)

_DECLARED = (
    'name: t\ndata: {csv: "day-{SPAN}/*.csv", spans: {last: 2}, label: y}\ntrainer: {model: dnn, train_steps: 9}\n'
)
_Row = dict[str, Any]


def _write(folder: Path, day: int, change: Optional[Callable[[_Row], Any]] = None) -> None:
    """Writes 600 rows: a number, words of uneven shares, the day's name, a label."""
    drawn, rows = random.Random(day), []
    for _ in range(600):
        row = {
            "number": drawn.gauss(0, 1),
            "word": drawn.choices("abc", [5, 3, 2])[0],
            "date": f"2026-05-{day:02}",
            "y": drawn.choice(["no", "yes"]),
        }
        if change:
            change(row)
        rows.append(row)
    (folder / f"day-{day}").mkdir()
    with open(folder / f"day-{day}" / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _run(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Runs the pipeline up to ExampleValidator; returns the nodes' states, and which examples a training would read."""
    (folder / "t.yaml").write_text(_DECLARED)
    folders = PipelineFolders(str(folder / "runs"), "t")
    Path(folders.local).mkdir(parents=True, exist_ok=True)
    declared = load(folder / "t.yaml").declaration
    check_kept(declared.data, folders.schema)
    ingested = ingest(declared, folders.schema)
    result = NodeRuns()
    pipeline = Pipeline(
        "t",
        folders.root,
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(folders.metadata),
        components=[*ingested.nodes],
    )
    LocalRunner(result, folders).run(pipeline)
    channels = getattr(ingested.examples, "channels", [ingested.examples])
    return {node: run.state for node, run in result.runs.items()}, [each.producer_component_id for each in channels]


@pytest.mark.long
def test_each_day_is_read_once_and_compared_with_the_day_before(tmp_path):
    for day in (1, 2, 3):
        _write(tmp_path, day)
    states, read = _run(tmp_path)
    # The day before the window is what its first one is compared with.
    assert [node for node in states if node.startswith("CsvExampleGen")] == [
        f"CsvExampleGen.{day}" for day in (1, 2, 3)
    ]
    assert set(states.values()) == {"ran"}
    assert read == ["CsvExampleGen.2", "CsvExampleGen.3"]
    kept = text_format.Parse((tmp_path / "runs/t/schema.pbtxt").read_text(), schema_pb2.Schema())
    drift = {each.name: each.drift_comparator for each in kept.feature}
    # At least what chance does in 200 rows.
    assert 0.1 <= drift["word"].infinity_norm.threshold <= 0.25
    assert 0.1 <= drift["number"].jensen_shannon_divergence.threshold <= 0.25
    assert "date" not in {each.name for each in kept.feature if each.HasField("drift_comparator")}
    assert set(_run(tmp_path)[0].values()) == {"cached"}

    # A new day: nothing of the others is read again; a day that has been removed is missed by nothing.
    _write(tmp_path, 4)
    shutil.rmtree(tmp_path / "day-1")
    states, read = _run(tmp_path)
    assert read == ["CsvExampleGen.3", "CsvExampleGen.4"]
    assert {node for node, state in states.items() if state == "ran"} == {
        *("CsvExampleGen.4", "StatisticsGen.4"),
        *("SchemaGen", "ExampleValidator"),
    }

    # Half of a day's words are another one, and its numbers are shifted; each word and number is known.
    _write(
        tmp_path, 5, lambda row: row.update(word="b" if row["number"] > 0 else row["word"], number=row["number"] + 2)
    )
    with refused(DataValidationError, "day 5", "'word'", "'number'", todo="schema.pbtxt") as caught:
        _run(tmp_path)
    assert {line.split("'")[3] for line in caught.value.what.splitlines()[1:]} == {"word", "number"}
    assert "day 4" not in caught.value.what

    # A day without a column is told before anything is read.
    shutil.rmtree(tmp_path / "day-5")
    _write(tmp_path, 5, lambda row: row.pop("word"))
    with refused(Exception, "column"):
        _run(tmp_path)


def test_a_column_that_changes_each_day_may_go_on_changing(tmp_path):
    for day in (1, 2, 3):
        _write(tmp_path, day, lambda row, day=day: row.update(word="ab"[day % 2], number=row["number"] + day))
    _run(tmp_path)
    _write(tmp_path, 4, lambda row: row.update(word="a", number=row["number"] + 4))
    assert _run(tmp_path)[0]["ExampleValidator"] == "ran"
