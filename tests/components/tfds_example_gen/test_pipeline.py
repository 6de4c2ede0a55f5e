"""The four components that write and check examples, in a real pipeline."""

from __future__ import annotations

import shutil

import pytest
import tensorflow as tf
from ml_metadata import proto
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.components.example_validator import ExampleValidator
from tfx_estimator.components.image_schema_gen import ImageSchemaGen
from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.base.errors import DataValidationError
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection


@pytest.fixture
def run(tmp_path):
    """Runs the pipeline of a `data` section; returns the total numbers of executions run and cached."""
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite"))

    def run_once(image_bytes: int | None = None, **data) -> tuple[int, int]:
        section = DataSection(**data)
        source = open_source(section)
        example_gen = TfdsExampleGen(section)
        schema_gen = ImageSchemaGen(examples=example_gen.outputs["examples"])
        schema = schema_gen.outputs["schema"]
        statistics_gen = StatisticsGen(examples=example_gen.outputs["examples"], schema=schema)
        validator = ExampleValidator(
            statistics=statistics_gen.outputs["statistics"],
            schema=schema,
            image_bytes=image_bytes or source.info.image_bytes,
        )
        pipeline = Pipeline(
            pipeline_name="ingest",
            pipeline_root=str(tmp_path / "artifacts"),
            components=[example_gen, schema_gen, statistics_gen, validator],
            enable_cache=True,
            beam_pipeline_args=BeamSection().pipeline_args(),
            metadata_connection_config=connection,
        )
        LocalDagRunner().run(pipeline)
        with metadata.Metadata(connection) as store:
            states = [execution.last_known_state for execution in store.store.get_executions()]
        return states.count(proto.Execution.COMPLETE), states.count(proto.Execution.CACHED)

    return run_once


def test_digits_are_valid_cached_and_written_again_when_a_split_changes(run, tmp_path):
    digits = {"dataset": "digits", "data_dir": str(tmp_path / "data"), "shards": 2}
    splits = {"train": "train[:80%]", "eval": "train[80%:]"}
    assert run(**digits, splits=splits) == (4, 0)
    assert run(**digits, splits=splits) == (4, 4)
    complete, _ = run(**digits, splits={"train": "train[:50%]", "eval": "train[80%:]"})
    # Schema's bytes are the same; all four see a new Examples artifact.
    assert complete == 8
    sizes = sorted(
        sum(1 for file in folder.iterdir() for _ in tf.data.TFRecordDataset(str(file)))
        for folder in (tmp_path / "artifacts" / "TfdsExampleGen").rglob("Split-train")
    )
    assert sizes == [898, 1438]


@pytest.mark.long
def test_another_location_of_the_same_data_is_no_change(run, tmp_path):
    splits = {"train": "train[:50]", "eval": "train[50:80]"}
    data = {"dataset": "digits", "data_dir": str(tmp_path / "data"), "shards": 2, "splits": splits}
    assert run(**data) == (4, 0)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    data["data_dir"] = str(tmp_path / "elsewhere")
    assert run(**data) == (4, 4)
    assert run(**data, download=False) == (4, 8)
    # A copy of the files at another path counts as the same source.
    data["dataset"] = str(tmp_path / "elsewhere" / "digits")
    complete, cached = run(**data)
    assert (complete, cached) == (8, 8)
    shutil.move(tmp_path / "elsewhere", tmp_path / "third")
    data["dataset"] = str(tmp_path / "third" / "digits")
    assert run(**data) == (8, 12)
    assert run(**{**data, "shards": 3})[0] > 8
    # The executed step read from the new location.
    third = sorted((tmp_path / "artifacts" / "TfdsExampleGen").rglob("Split-train/*-of-00003"))
    assert sum(1 for _ in tf.data.TFRecordDataset(list(map(str, third)))) == 50


def test_an_anomaly_stops_the_pipeline(run, tmp_path):
    digits = {"dataset": "digits", "data_dir": str(tmp_path / "data"), "shards": 1}
    with pytest.raises(DataValidationError, match="feature 'image': Wrong image size") as caught:
        run(**digits, splits={"train": "train[:50]", "eval": "train[50:80]"}, image_bytes=28 * 28 * 3)
    assert caught.value.what.count("Images of 784 to 784 bytes, expected exactly 2,352") == 2  # in both splits
