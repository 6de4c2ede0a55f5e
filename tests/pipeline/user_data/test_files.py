"""Tables of Parquet and TFRecord files: the same reading as of CSV, what is refused, and what Beam reads of them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.folders import write_files
from tests.refusals import refused
from tests.root import run_python
from tests.table_files import read_columns, to_example, write_parquet, write_raw, write_records
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.task import task_of
from tfx_estimator.pipeline.user_data.embedded_tables import place_of
from tfx_estimator.pipeline.user_data.record_file import is_head
from tfx_estimator.pipeline.user_data.table import TableReading, find_features, read_table, scan_label

WRITE = {"parquet": write_parquet, "tfrecord": write_records}
NAMES = {"parquet": "t.parquet", "tfrecord": "t.tfrecord.gz"}
# A right one.
RIGHT: dict[str, list[Any]] = {
    "x": [n % 10 + 0.5 for n in range(60)],
    "c": ["abc"[n % 3] for n in range(60)],
    "n": [n // 2 for n in range(60)],
    "y": [n // 2 % 2 for n in range(60)],
}


def _read(folder: Path, key: str, **more: Any) -> TableReading:
    return read_table(str(folder), key=key, **more)


def _by_name(reading: TableReading) -> dict[str, Any]:
    """Returns the columns, whose numbers are 46 or 46.0, as files of text have them."""
    return {
        each.name: dataclasses.replace(each, values={float(cell): count for cell, count in each.values.items()})
        for each in reading.columns
    }


def _with(**columns: Any) -> dict[str, Any]:
    return RIGHT | columns


def _holed(column: str, row: int, value: Any = None) -> dict[str, Any]:
    return _with(**{column: [*RIGHT[column][:row], value, *RIGHT[column][row + 1 :]]})


@pytest.mark.parametrize(
    ("key", "table", "label"),
    # tf.Examples have 32 bits for a float, of which diabetes has more.
    [("parquet", "cancer", "benign"), ("parquet", "diabetes", "progression"), ("tfrecord", "cancer", "benign")],
)
def test_a_table_is_read_as_its_csv_file_is(tmp_path, key, table, label):
    place = place_of(table)
    WRITE[key](tmp_path / NAMES[key], read_columns(place))
    expected, found = read_table(place, label=label), _read(tmp_path, key, label=label)
    assert _by_name(found) == _by_name(expected)
    same = ("rows", "is_whole", "rows_by_split", "doubts")
    assert [getattr(found, name) for name in same] == [getattr(expected, name) for name in same]
    assert task_of(found.column(label)) == task_of(expected.column(label))


@pytest.mark.parametrize("key", WRITE)
def test_missing_values_zeros_and_numbers_written_as_words_are_told_apart(tmp_path, key):
    columns = _with(
        c=["07", "", None] * 20,
        x=[0.0, None, 1.5] * 20,
        n=[0, None, -(2**40)] * 20,
        gone=[None] * 60,
        y=["1", "0"] * 30,
    )
    WRITE[key](tmp_path / NAMES[key], columns)
    found = {column.name: (column.kind, column.missing, column.distinct) for column in _read(tmp_path, key).columns}
    absent = {"gone": ("", 60, 0)} if key == "parquet" else {}
    numbers = {"x": ("float", 20, 2), "n": ("int", 20, 2)}
    assert found == {"c": ("bytes", 40, 1), "y": ("bytes", 0, 2), **numbers, **absent}
    assert _read(tmp_path, key, label="y").column("y").values == {"1": 30, "0": 30}


@pytest.mark.parametrize("key", WRITE)
def test_columns_of_several_values(tmp_path, key):
    WRITE[key](tmp_path / NAMES[key], _with(tags=[["a", "b"], ["c"], []] * 20, pair=[[1.5, 2.5]] * 60))
    found = _read(tmp_path, key, label="y")
    tags, pair = found.column("tags"), found.column("pair")
    assert (tags.kind, tags.length, tags.missing) == ("bytes", 2, 20)
    assert (pair.kind, pair.length, pair.missing) == ("float", 2, 0)
    assert found.column("x").length == 1
    with refused(DataError, f"the label pair of {tmp_path / NAMES[key]} has up to 2 values a row"):
        _read(tmp_path, key, label="pair")


def _cut(path: Path, size: int = -20) -> None:
    path.write_bytes(path.read_bytes()[:size])


def _numbers(folder: Path) -> None:
    write_raw(folder / "t.tfrecord", [bytes([255, n, 7]) for n in range(20)])


def _sequences(folder: Path) -> None:
    import tensorflow as tf

    listed = tf.train.FeatureLists(feature_list={"x": tf.train.FeatureList(feature=[tf.train.Feature()])})
    sequence = tf.train.SequenceExample(
        context=tf.train.Example.FromString(to_example({"x": 1})).features, feature_lists=listed
    )
    write_raw(folder / "t.tfrecord", [sequence.SerializeToString()] * 4)


_DAYS = [datetime.datetime(2024, 1, 1 + n % 28) for n in range(60)]
# What is wrong -> the columns or the content of t.parquet or t.tfrecord; or files by name, or what writes them; and
# words of the error.
REFUSED = {
    "Parquet: a file that is cut": (
        lambda at: _cut(write_parquet(at / "t.parquet", RIGHT)),
        "{0}/t.parquet is no Parquet file, or damaged",
    ),
    "Parquet: a CSV file of this name": ("x,y\n" + "1,2\n" * 9, "{0}/t.parquet is no Parquet file, or damaged"),
    "Parquet: an empty file": ("", "{0}/t.parquet is no Parquet file, or damaged"),
    "Parquet: no row": ({"x": pa.array([], pa.int64())}, "{0}/t.parquet has no row"),
    "Parquet: timestamps": (_with(day=_DAYS), "column day of {0}/t.parquet is of the type timestamp[us]"),
    "Parquet: decimals": (
        _with(price=[decimal.Decimal("1.50")] * 60),
        "column price of {0}/t.parquet is of the type decimal128(3, 2)",
    ),
    "Parquet: a nested column": (
        _with(at=[{"lat": 1.5, "lon": 2.5}] * 60),
        "column at of {0}/t.parquet is of the type struct<lat: double, lon: double>",
    ),
    "Parquet: a column less in another file": (
        {"a.parquet": RIGHT, "b.parquet": {name: cells for name, cells in RIGHT.items() if name != "c"}},
        "{0}/b.parquet has no column c, which {0}/a.parquet has",
    ),
    "Parquet: floats, as there are nulls, for whole numbers in another file": (
        {"a.parquet": RIGHT, "b.parquet": _with(n=[1.0, None] * 30)},
        "column n of {0}/b.parquet holds numbers with a point, but of {0}/a.parquet whole numbers",
    ),
    "Parquet: no file": ({"t.csv": "x"}, "there is no file {0}/*.parquet"),
    "Parquet: no such label": ({"x": [1, 2]}, "{0}/t.parquet has no column y"),
    "Parquet: a label that is null": (_holed("y", 7), "the label y is missing in row 7 of {0}/t.parquet; such rows: 1"),
    "Parquet: a label that is no number": (
        _with(y=[0.5, float("nan"), 1.5] * 20),
        "the label y is nan in row 1 of {0}/t.parquet; such rows: 20",
    ),
    "TFRecord: no file": ({"t.csv": "x"}, "no file {0}/*tfrecord*"),
    "TFRecord: an empty file": ("", "{0}/t.tfrecord has no row"),
    "TFRecord: a file that is cut": (
        lambda at: _cut(write_records(at / "t.tfrecord", RIGHT)),
        "{0}/t.tfrecord ends within its record 59",
    ),
    "TFRecord: a gzipped file that is cut": (
        lambda at: _cut(write_records(at / "t.tfrecord.gz", RIGHT), -200),
        "{0}/t.tfrecord.gz ends within its record",
    ),
    "TFRecord: cut within a length": (
        lambda at: _cut(write_raw(at / "t.tfrecord", [to_example({"x": 1})] * 2), -38),
        "{0}/t.tfrecord ends within its record",
    ),
    "TFRecord: gzipped, but for its name": (
        lambda at: write_records(at / "a.tfrecord.gz", RIGHT).rename(at / "a.tfrecord"),
        "{0}/a.tfrecord is gzipped, and its name does not end in .gz",
    ),
    "TFRecord: plain, but for its name": (
        lambda at: write_records(at / "a.tfrecord", RIGHT).rename(at / "a.tfrecord.gz"),
        "{0}/a.tfrecord.gz is not gzipped",
    ),
    "TFRecord: a CSV file of this name": ("x,y\n" + "1,2\n" * 9, "{0}/t.tfrecord is no TFRecord file"),
    "TFRecord: a changed length": (
        lambda at: (at / "t.tfrecord").write_bytes(
            write_raw(at / "t.tfrecord", [to_example({"x": 1})]).read_bytes() + bytes(40)
        ),
        "{0}/t.tfrecord is damaged after 1 records",
    ),
    "TFRecord: no tf.Examples": (_numbers, "the records of {0}/t.tfrecord are no tf.Examples: record 0"),
    "TFRecord: sequences": (_sequences, "record 0 is a SequenceExample"),
    "TFRecord: words for numbers in a later record": (
        _holed("x", 31, "high"),
        "column x holds words in record 31 of {0}/t.tfrecord, but numbers with a point in records before it",
    ),
    "TFRecord: words for numbers in another file": (
        {"a.tfrecord": RIGHT, "b.tfrecord": _with(n=["a"] * 60)},
        "column n of {0}/b.tfrecord holds words, but of {0}/a.tfrecord whole numbers",
    ),
    "TFRecord: a label that is missing": (
        _holed("y", 7),
        "the label y is missing in record 7 of {0}/t.tfrecord; such rows: 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused(tmp_path, case):
    key, (made, *what) = case.partition(":")[0].lower(), REFUSED[case]
    is_named = isinstance(made, dict) and "." in next(iter(made))
    for name, content in (made if is_named else {f"t.{key}": made}).items():
        if callable(content):
            content(tmp_path)
        elif isinstance(content, dict):
            WRITE[key](tmp_path / name, content)
        else:
            write_files(tmp_path, {name: content})
    with refused(DataError, *(each.format(tmp_path) for each in what)) as caught:
        _read(tmp_path, key, label="y")
    assert caught.value.todo
    assert "\n" not in caught.value.what


@pytest.mark.parametrize("key", WRITE)
def test_a_label_that_a_later_row_lacks_is_found(tmp_path, key):
    labels = [n % 3 for n in range(20_050)]
    labels[20_040] = None
    WRITE[key](tmp_path / NAMES[key], {"y": labels, "x": [1.5] * len(labels)})
    found = _read(tmp_path, key, label="y")
    assert (found.rows, found.is_whole) == (20_000, False)
    unit = {"parquet": "row", "tfrecord": "record"}[key]
    with refused(DataError, f"{unit} 20,040 of {tmp_path / NAMES[key]} has no value of the label y"):
        scan_label(found, "y", True)


def test_files_of_a_table_may_order_columns_differently_and_records_lack_features(tmp_path):
    shuffled = dict(reversed(RIGHT.items()))
    write_parquet(tmp_path / "a.parquet", RIGHT)
    write_parquet(tmp_path / "b.parquet", shuffled)
    write_records(tmp_path / "a.tfrecord", RIGHT)
    write_records(tmp_path / "b.tfrecord", {"y": [0, 1] * 30, "new": ["a"] * 60})
    found = _read(tmp_path, "parquet", label="y")
    assert {column.name: column.values for column in found.columns if column.name == "c"} == {
        "c": {"a": 40, "b": 40, "c": 40}
    }
    missing = {column.name: column.missing for column in _read(tmp_path, "tfrecord", label="y").columns}
    assert missing == {"x": 60, "c": 60, "n": 60, "y": 0, "new": 60}


def test_splits_have_files_of_their_own(tmp_path):
    for name in ("train-1", "train-2", "eval-1"):
        write_parquet(tmp_path / f"{name}.parquet", RIGHT)
    found = _read(tmp_path, "parquet", files_by_split={"train": "train-*", "eval": "eval-*"})
    assert found.rows_by_split == {"train": 120, "eval": 60}
    assert "different rows of eval that another split has" in "".join(found.notes())


def test_every_feature_of_a_tf_example_is_read_as_tensorflow_reads_it(tmp_path):
    chance = random.Random(1)
    rows: list[dict[str, Any]] = []
    for _ in range(200):
        count = chance.choice([0, 1, 1, 1, 2, 40])
        numbers = [chance.choice([0, 1, 127, 128, -1, 2**62, -(2**63)]) for _ in range(count)]
        floats = [chance.choice([0.0, -0.5, 1e38, 1e-40, 3.14159274, 16777216.0]) for _ in range(count)]
        words = [chance.choice(["", "a", "x" * 123, "y" * 124, "z" * 300, "é"]) for _ in range(count)]
        rows.append({"n": numbers, "f": floats, "w": words})
    raw = [to_example(row) for row in rows]
    # The words of a list of packed values, and of one that is not.
    raw.append(bytes.fromhex("0a0b0a090a016e12041a020805"))
    rows.append({"n": [5], "f": [], "w": []})
    write_raw(tmp_path / "t.tfrecord", raw)
    from tfx_estimator.pipeline.user_data.record_file import read_file

    file = read_file(tmp_path / "t.tfrecord", 1_000, 100_000)
    import numpy as np

    read = {"n": int, "f": lambda text: np.float32(text), "w": str}
    for row, cells in zip(rows, file.rows, strict=True):
        for name, cell in zip(file.names, cells):
            found = [read[name](each) for each in (cell if isinstance(cell, tuple) else [cell] if cell else [])]
            expected = [np.float32(each) for each in row[name]] if name == "f" else row[name]
            assert found == ([] if expected == [""] else expected)


def test_no_declaration_waits_for_tensorflow(tmp_path):
    write_parquet(tmp_path / "t.parquet", RIGHT)
    write_records(tmp_path / "t.tfrecord", RIGHT)
    read = "".join(f"read_table({str(tmp_path)!r}, key={key!r}, label='y'); " for key in WRITE)
    code = f"import sys; from tfx_estimator.pipeline.user_data.table import read_table; {read}"
    run_python("-c", f"{code}assert not {{'tensorflow', 'tfx', 'apache_beam'}} & {{*sys.modules}}")


def test_the_head_of_a_record_has_a_checksum(tmp_path):
    head = write_raw(tmp_path / "t", [b"abc"]).read_bytes()
    assert is_head(head)
    assert not is_head(bytes([head[0] ^ 1]) + head[1:])
    assert not is_head(head[:11])


def test_what_a_place_holds_is_found(tmp_path):
    write_parquet(tmp_path / "p" / "part-0.snappy.parquet", RIGHT)
    write_files(tmp_path / "p", {"_SUCCESS": ""})
    write_parquet(tmp_path / "images" / "t.parquet", {"image": ["a.png"], "label": [1]})
    write_records(tmp_path / "r" / "data_tfrecord-00000-of-00001.gz", RIGHT)
    write_files(tmp_path, {"tfds/features.json": "{}", "both/a.csv": "x,y", "bad/x.tfrecord": "x,y\n1,2\n3,4\n"})
    write_records(tmp_path / "tfds" / "x.tfrecord-00000-of-00001", RIGHT)
    write_parquet(tmp_path / "both" / "b.parquet", RIGHT)
    places = ["p", "p/part-0.snappy.parquet", "images", "r", "tfds", "both", "bad", "p/*.parquet"]
    found = {place: find_features(str(tmp_path / place)) for place in places}
    parquet = {"p": "parquet", "p/part-0.snappy.parquet": "parquet", "p/*.parquet": "parquet"}
    assert found == {"images": "", "tfds": "", "both": "", "bad": "", "r": "tfrecord", **parquet}


@pytest.mark.timeout(120)
def test_beam_reads_of_a_parquet_file_what_was_read_before_it(tmp_path):
    """Zeros are values, which TFX's own executor takes for missing ones."""
    import apache_beam as beam

    from tfx_estimator.components.example_gens.parquet import Executor

    columns = {
        "zero": pa.array([0, 1, None] * 4),
        "none": pa.array([0.0, None, 2.5] * 4, pa.float32()),
        "is": pa.array([False, True, None] * 4),
        "word": pa.array(["", "a", None] * 4).dictionary_encode(),
        "raw": pa.array([b"\xff", b"a", b""] * 4),
        "list": pa.array([[1, 2], [], None] * 4),
        "null": pa.nulls(12),
    }
    write_parquet(tmp_path / "t.parquet", columns)
    column = {each.name: each for each in _read(tmp_path, "parquet").columns}
    read = Executor().GetInputSourceToExamplePTransform()
    with beam.Pipeline() as pipeline:
        examples = pipeline | read({"input_base": str(tmp_path)}, "*.parquet")
        place = str(tmp_path / "out")
        texts = examples | beam.Map(lambda each: each.SerializeToString())
        _ = texts | beam.io.WriteToTFRecord(place, num_shards=1, file_name_suffix=".tfrecord")
    out = next(tmp_path.glob("out*"))
    import tensorflow as tf

    found = [
        tf.train.Example.FromString(each).features.feature
        for each in tf.data.TFRecordDataset(str(out)).as_numpy_iterator()
    ]
    assert len(found) == 12
    for name, each in column.items():
        kinds = {row[name].WhichOneof("kind") for row in found} - {None}
        assert kinds == {{"int": "int64_list", "float": "float_list", "bytes": "bytes_list", "": None}[each.kind]} - {
            None
        }
        assert sum(row[name].WhichOneof("kind") is None for row in found) == each.missing
    assert {row["zero"].int64_list.value[0] for row in found if row["zero"].int64_list.value} == {0, 1}
    assert (column["zero"].missing, column["none"].missing, column["is"].missing) == (4, 4, 4)
    # What was read of them as records is the same.
    again = {each.name: each for each in _read(out.parent, "tfrecord").columns}
    for name, each in column.items():
        assert each.kind == "" or again[name] == each, name
