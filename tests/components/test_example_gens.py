"""The ExampleGens of tables: one row after another on this machine, and the rows and splits that TFX makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import json_format
from tfx.components.example_gen.csv_example_gen.executor import Executor as TfxCsv
from tfx.components.example_gen.import_example_gen.executor import Executor as TfxImport
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from tests.folders import write_files
from tests.table_files import write_parquet, write_records
from tfx_estimator.components.example_gens import csv, parquet, streaming, tfrecord
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError
from tfx_estimator.pipeline.config.beam import IN_PROCESS

pytestmark = [pytest.mark.unit, pytest.mark.timeout(120)]

HEAD = "whole,number,long,word,date,none,late,text,wide\n"
ROWS = [
    "1,1.5,9223372036854775808,a,2020-01-01,,1,plain,\uff11\uff12\n",
    '-2,, 7,ü,,,,"a, b",\n',
    ',1e3,+8,,2020-01-02,,3,"two\nlines and a ""quote""",7\n',
    "\n",
    " 4,nan,1_000,7,2020-01-03,,4,,\n",
    "5,-inf,0,8,2020-01-04,,x,end,3",
]
SHARES = {"train": 2, "eval": 1}


def _run(executor, folder, target, patterns: dict, shares: dict, split_by: str = "", runner: str = IN_PROCESS) -> dict:
    """Returns the records of each split."""
    split, config = example_gen_pb2.Input.Split, example_gen_pb2.SplitConfig
    read = example_gen_pb2.Input(splits=[split(name=name, pattern=pattern) for name, pattern in patterns.items()])
    buckets = [config.Split(name=name, hash_buckets=count) for name, count in shares.items()]
    config_of = config(splits=buckets, partition_feature_name=split_by or None)
    written = example_gen_pb2.Output(split_config=config_of if shares else None)
    examples = standard_artifacts.Examples()
    examples.uri = str(target)
    properties = {
        "input_base": str(folder),
        "input_config": json_format.MessageToJson(read),
        "output_config": json_format.MessageToJson(written),
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
        "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
    }
    context = BaseBeamExecutor.Context([f"--runner={runner}"], tmp_dir=str(target), unique_id="1")
    executor(context).Do({}, {"examples": [examples]}, properties)
    assert json.loads(examples.split_names) == list(shares or patterns)
    assert examples.get_string_custom_property("payload_format") == "FORMAT_TF_EXAMPLE"
    found = {}
    for name in shares or patterns:
        files = sorted((target / f"Split-{name}").iterdir())
        assert [file.name for file in files] == [
            f"data_tfrecord-{number:05}-of-{len(files):05}.gz" for number in range(len(files))
        ]
        records = tf.data.TFRecordDataset(list(map(str, files)), "GZIP").as_numpy_iterator()
        texts = [tf.train.Example.FromString(each).SerializeToString(deterministic=True) for each in records]
        found[name] = texts
    return found


def _csv(folder: Path) -> None:
    write_files(
        folder,
        {"a.csv": HEAD + "".join(ROWS), "b.csv": HEAD + "".join(f"{n},{n}.5,{n},w,d,,{n},t,{n}\n" for n in range(60))},
    )


def test_csv_files_become_tfxs_examples_in_tfxs_splits(tmp_path):
    _csv(tmp_path)
    patterns = {"single_split": "*.csv"}
    theirs = _run(TfxCsv, tmp_path, tmp_path / "theirs", patterns, SHARES)
    ours = _run(csv.Executor, tmp_path, tmp_path / "ours", patterns, SHARES)
    assert {name: sorted(each) for name, each in ours.items()} == {name: sorted(each) for name, each in theirs.items()}
    assert sum(map(len, ours.values())) == 65
    with pytest.raises(DataError, match=r"data\.split_by: number: .*bytes_list. and .int64_list"):
        _run(csv.Executor, tmp_path, tmp_path / "by", patterns, SHARES, "number")
    by_word = _run(csv.Executor, tmp_path, tmp_path / "by", {"single_split": "b.csv"}, SHARES, "word")
    assert sorted(map(len, by_word.values())) == [0, 60]


def test_patterns_are_splits_each_with_the_kinds_of_its_own_columns(tmp_path):
    _csv(tmp_path)
    patterns = {"train": "a.csv", "eval": "b.csv"}
    theirs = _run(TfxCsv, tmp_path, tmp_path / "theirs", patterns, {})
    ours = _run(csv.Executor, tmp_path, tmp_path / "ours", patterns, {})
    assert {name: sorted(each) for name, each in ours.items()} == {name: sorted(each) for name, each in theirs.items()}
    late = [tf.train.Example.FromString(each[0]).features.feature["late"].WhichOneof("kind") for each in ours.values()]
    assert late == ["bytes_list", "int64_list"]
    assert {
        tf.train.Example.FromString(each).features.feature["wide"].WhichOneof("kind") for each in ours["train"]
    } == {"bytes_list"}


def test_a_split_of_many_rows_has_several_files_in_the_order_of_the_rows(tmp_path, monkeypatch):
    _csv(tmp_path)
    monkeypatch.setattr(streaming, "_FILE_BYTES", 2_000)
    found = _run(csv.Executor, tmp_path, tmp_path / "ours", {"train": "b.csv"}, {})["train"]
    assert len(list((tmp_path / "ours" / "Split-train").iterdir())) > 2
    whole = [tf.train.Example.FromString(each).features.feature["whole"].int64_list.value[0] for each in found]
    assert whole == list(range(60))


def test_a_wrong_row_far_below_is_named_and_nothing_is_left(tmp_path):
    write_files(tmp_path, {"a.csv": "x,y\n" + "1,2\n" * 30_000 + "1,2,3\n"})
    with pytest.raises(DataError, match=r"line 30,002 of .*a\.csv has 3 cells: 1,2,3"):
        _run(csv.Executor, tmp_path, tmp_path / "ours", {"single_split": "*.csv"}, SHARES)
    assert not list((tmp_path / "ours").rglob("*.gz"))


def test_a_damaged_file_is_named(tmp_path):
    write_records(tmp_path / "a.tfrecord", {"x": list(range(500))})
    write_parquet(tmp_path / "a.parquet", {"x": list(range(5_000))})
    for name, executor in (("a.tfrecord", tfrecord.Executor), ("a.parquet", parquet.Executor)):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-3])
        with pytest.raises(DamagedDataError, match=name):
            _run(executor, tmp_path, tmp_path / "ours", {"single_split": name}, SHARES)


def test_records_are_copied_into_tfxs_splits(tmp_path):
    columns = {"x": list(range(40)), "word": [f"w{number}" for number in range(40)]}
    write_records(tmp_path / "a.tfrecord", columns)
    write_records(tmp_path / "b.tfrecord.gz", columns)
    patterns = {"single_split": "*.tfrecord*"}
    theirs = _run(TfxImport, tmp_path, tmp_path / "theirs", patterns, SHARES)
    ours = _run(tfrecord.Executor, tmp_path, tmp_path / "ours", patterns, SHARES)
    assert {name: sorted(each) for name, each in ours.items()} == {name: sorted(each) for name, each in theirs.items()}
    assert sum(map(len, ours.values())) == 80


def test_parquet_files_become_the_same_examples_on_every_engine(tmp_path):
    columns = {
        "zero": [0, 1, None] * 20,
        "list": [[1, 2], [], None] * 20,
        "word": ["", "a", None] * 20,
        "id": range(60),
    }
    write_parquet(tmp_path / "a.parquet", {name: [*each] for name, each in columns.items()})
    # Spark marks a folder with an empty file.
    write_files(tmp_path, {"_SUCCESS": ""})
    patterns = {"single_split": "[_a]*"}
    # Beam's name for the same engine, which TFX's executor is given.
    beam = _run(parquet.Executor, tmp_path, tmp_path / "beam", patterns, SHARES, runner="FnApiRunner")
    ours = _run(parquet.Executor, tmp_path, tmp_path / "ours", patterns, SHARES)
    assert {name: sorted(each) for name, each in ours.items()} == {name: sorted(each) for name, each in beam.items()}
    assert sum(map(len, ours.values())) == 60
