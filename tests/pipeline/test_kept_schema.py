"""A table's schema over several days: inferred, kept, and what the rows of another day are checked against.

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
from tfx_estimator.pipeline.base.errors import DataError, DataValidationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.folders import PipelineFolders, relocate_artifacts
from tfx_estimator.pipeline.ingestion import ingest
from tfx_estimator.pipeline.runners.local import LocalRunner

pytestmark = pytest.mark.timeout(300)

_DECLARED = "name: t\ndata: {csv: t.csv, label: y}\ntrainer: {model: dnn, train_steps: 10}\n"
_CACHED = {"CsvExampleGen": "cached", "StatisticsGen": "cached", "SchemaGen": "cached", "ExampleValidator": "cached"}
_Row = dict[str, Any]


class Days:
    """A pipeline's folder, and the table that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "t.yaml").write_text(_DECLARED)

    @property
    def schema(self) -> Path:
        return self.folder / "runs" / "t" / "schema.pbtxt"

    def write(self, change: Optional[Callable[[int, _Row], Any]] = None) -> None:
        """Writes 600 rows: a number, a tenth of whose cells are empty, one of all rows, words of all kinds, a label."""
        drawn, rows = random.Random(0), []
        for number in range(600):
            row = {
                "some": drawn.random() if number % 10 else "",
                "all": drawn.random(),
                "word": drawn.choice("abc"),
                "flag": drawn.choice(["true", "false"]),
                "date": "2026-05-01",
                "name": f"Mrs {number}" if number < 60 else "Mr",
                "y": drawn.choice(["no", "yes"]),
            }
            if change:
                change(number, row)
            rows.append(row)
        with open(self.folder / "t.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    def run(self, *overrides: str) -> dict[str, str]:
        """Runs the pipeline up to ExampleValidator; returns the components' states."""
        folders = PipelineFolders(str(self.folder / "runs"), "t")
        Path(folders.local).mkdir(parents=True, exist_ok=True)
        relocate_artifacts(folders.metadata, folders.home)
        nodes = ingest(load(self.folder / "t.yaml", overrides).declaration, folders.schema).nodes
        database = metadata.sqlite_metadata_connection_config(folders.metadata)
        result = NodeRuns()
        pipeline = Pipeline(
            "t", folders.root, enable_cache=True, metadata_connection_config=database, components=[*nodes]
        )
        LocalRunner(result, folders).run(pipeline)
        return {node: run.state for node, run in result.runs.items()}


@pytest.fixture
def days(tmp_path) -> Days:
    days = Days(tmp_path)
    days.write()
    return days


def _share(column: str, share: float, value: Any = "") -> Callable[[int, _Row], Any]:
    """Gives a share of the rows another value in a column."""
    return lambda number, row: row.update({column: value} if number % 100 < 100 * share else {})


@pytest.mark.long
def test_the_schema_of_the_first_rows_is_kept_and_later_rows_are_checked_against_it(days):
    assert set(days.run().values()) == {"ran"}
    text = days.schema.read_text()
    kept = {each.name: each for each in text_format.Parse(text, schema_pb2.Schema()).feature}
    # TFX's own says 1.0 of both.
    assert 0.7 < kept["some"].presence.min_fraction <= 0.8
    assert kept["all"].presence.min_fraction == 0.9
    assert kept["y"].presence.min_fraction == 1.0
    # Nothing is inferred a second time, or made again: Transform and Trainer would be, too.
    assert days.run() == _CACHED

    # Little has changed: the rows pass, and the schema stays.
    changes = [_share(*each) for each in (("all", 0.05), ("word", 0.01, "new"), ("flag", 0.01, "?"))]
    # Other words on each day are no change.
    changes.append(lambda number, row: row.update(date="2026-05-02", name=row["name"].replace("Mrs", "Dr")))
    days.write(lambda number, row: [change(number, row) for change in changes])
    assert set(days.run().values()) == {"ran"}
    assert days.schema.read_text() == text

    # A column is more than half empty, another has words that are mostly new, and the label a new class.
    changes = [_share(*each) for each in (("some", 0.6), ("word", 0.5, "else"), ("y", 0.01, "Yes"))]
    days.write(lambda number, row: [change(number, row) for change in changes])
    with refused(DataValidationError, "6 anomalies", todo=str(days.schema)) as caught:
        days.run()
    lines = [line for line in caught.value.what.splitlines() if "split 'train'" in line]
    assert [line.split("feature ")[1].partition(":")[0] for line in lines] == ["'some'", "'word'", "'y'"]
    assert "Empty cells" in lines[0]
    assert "(missing in " in lines[0]
    assert "else" in lines[1]
    assert "Yes" in lines[2]

    # Without the file, the schema is that of these rows.
    days.schema.unlink()
    assert days.run()["SchemaGen"] == "ran"
    assert "else" in days.schema.read_text()
    assert days.run() == _CACHED


def test_a_column_that_is_gone_new_or_of_another_kind_is_found(days):
    days.run()

    def change(number: int, row: _Row) -> None:
        del row["word"]
        row["more"], row["all"] = 1, number % 7

    days.write(change)
    with refused(DataValidationError, "6 anomalies", "'all'", "'word': Column dropped", "'more': New column"):
        days.run()
    # The user takes them all as they are, in TFDV's words.
    schema = text_format.Parse(days.schema.read_text(), schema_pb2.Schema())
    features = {each.name: each for each in schema.feature}
    features["word"].lifecycle_stage = schema_pb2.DEPRECATED
    features["all"].type = schema_pb2.INT
    schema.feature.add(name="more", type=schema_pb2.INT)
    days.schema.write_text(text_format.MessageToString(schema))
    assert (days.run()["SchemaGen"], days.run()) == ("ran", _CACHED)
    days.schema.write_text("feature { name: ")
    with refused(DataError, f"{days.schema} is not a schema"):
        days.run()


@pytest.mark.long
def test_a_declared_schema_is_read_anew_when_it_changes_and_a_kept_one_moves_with_its_folder(days, tmp_path):
    days.run()
    text = days.schema.read_text()
    shutil.copy(days.schema, declared := tmp_path / "mine.pbtxt")
    override = f"data.schema={declared}"
    days.run(override)
    schema = text_format.Parse(declared.read_text(), schema_pb2.Schema())
    next(each for each in schema.feature if each.name == "some").presence.min_fraction = 0.99
    declared.write_text(text_format.MessageToString(schema))
    with refused(DataValidationError, "feature 'some': Empty cells", todo=str(declared)):
        days.run(override)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "runs").rename(elsewhere / "runs")
    moved = Days(elsewhere)
    shutil.copy(tmp_path / "t.csv", elsewhere / "t.csv")
    moved.run()
    assert moved.schema.read_text() == text
