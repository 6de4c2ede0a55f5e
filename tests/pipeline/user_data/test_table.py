"""Tables of features as people have them: what CsvExampleGen makes of them, what is refused, and what is told."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.folders import write_files
from tests.refusals import refused
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.user_data.table import TableReading, find_features, read_table

TAXI = Path(__file__).resolve().parents[4] / "shared" / "data" / "taxi" / "data.csv"
# A right one: numbers, words, and a label that neither tells.
RIGHT = ["x,c,y", *(f"{n * 7 % 10}.5,{'abc'[n % 3]},{n // 2 % 2}" for n in range(60))]


def _with(line: int = 1, cells: str = "", table: list[str] = RIGHT) -> bytes:
    """Returns the table, with another line."""
    return "\n".join([*table[: line - 1], cells, *table[line:]]).encode() + b"\n"


def _column(cells: object, name: str = "x") -> bytes:
    """Returns the table with one column of other cells."""
    index, table = RIGHT[0].split(",").index(name), [line.split(",") for line in RIGHT]
    for row, cell in zip(table[1:], cells):
        row[index] = str(cell)
    return "\n".join(map(",".join, table)).encode() + b"\n"


# What is wrong -> a.csv, or the files by name; words of the error; with `SPLITS`, if a split has files of its own.
REFUSED = {
    "no file": ({"b.txt": "x"}, "there is no file {0}/*.csv"),
    "no folder": ({}, "there is no file"),
    "a folder of this name": ({"a.csv/b": "x"}, "{0}/a.csv cannot be read: Is a directory"),
    "an empty file": ("", "{0}/a.csv is empty"),
    "an empty first line": (_with(1, ""), "line 1 of {0}/a.csv is empty"),
    "names only": ("x,c,y\n", "{0}/a.csv has names only"),
    "names again": (_with(31, RIGHT[0]), "line 31 of {0}/a.csv has the names of the columns again"),
    "one row": ("x,c,y\n1,a,0\n", "{0}/a.csv has one row only"),
    "no names": ("\n".join(RIGHT[1:]), "line 1 of {0}/a.csv has no names, but data: 0.5,a,0"),
    "no names, but a date": (
        "".join(f"2024-01-{n:02},{n},a\n" for n in range(1, 30)),
        "line 1 of {0}/a.csv has no names, but data: 2024-01-01,1,a",
    ),
    "no names, and an empty cell": (_with(1, "0.5,a,"), "has no names, but data: 0.5,a,"),
    "a column twice": (
        _with(1, "x,c,x"),
        "line 1 of {0}/a.csv has a name twice, and CsvExampleGen only one of the columns: x",
    ),
    "an index of pandas": (_with(1, ",c,y"), "line 1 of {0}/a.csv has no name for column 1 of 3"),
    "a comma after the last name": (_with(1, "x,c,"), "no name for column 3 of 3"),
    "a byte-order mark": (b"\xef\xbb\xbf" + _with(1, RIGHT[0]), "{0}/a.csv begins with a byte-order mark"),
    "quotes around names": (_with(1, '"x","c","y"'), "line 1 of {0}/a.csv has quotes"),
    "semicolons": (_with(1, RIGHT[0]).replace(b",", b";"), "line 1 of {0}/a.csv has semicolons"),
    "tabs": (_with(1, RIGHT[0]).replace(b",", b"\t"), "line 1 of {0}/a.csv has tabs"),
    "UTF-16": ("\n".join(RIGHT).encode("utf-16"), "line 1 of {0}/a.csv", "UTF-16"),
    "Latin-1": (_with(7, "1,café,1").decode().encode("latin-1"), "line 7 of {0}/a.csv", "LATIN1"),
    "a row too long": (_with(9, "1,5,a,1"), "line 9 of {0}/a.csv has 4 cells: 1,5,a,1"),
    "a row too short": (_with(61, "1,a"), "line 61 of {0}/a.csv has 2 cells: 1,a"),
    "a line of spaces": (_with(5, "  "), "line 5 of {0}/a.csv has 1 cells"),
    "a row too long after a cell of two lines": (_with(3, '1,"a\nb",0\n1,a,0,0'), "line 5 of {0}/a.csv has 4 cells"),
    "a quote of inches": (_with(4, '5,5" pipe,1'), "line 4 of {0}/a.csv", "a quote is not closed"),
    "two quotes of inches": (
        _with(8, '5,5" pipe,1', _with(4, '5,5" pipe,1').decode().splitlines()),
        "line 4 of {0}/a.csv cannot be cut into cells",
    ),
    "a quote where TFX would wait forever": (_with(4, '5,b"c,"1'), "line 4 of {0}/a.csv", "a quote is not closed"),
    "other names in another file": (
        {"a.csv": _with(1, RIGHT[0]), "b.csv": _with(1, "x,d,y")},
        "line 1 of {0}/b.csv has d for column 2, where {0}/a.csv has c",
    ),
    "a column less in another file": (
        {"a.csv": _with(1, RIGHT[0]), "b.csv": "x,c\n1,a\n"},
        "line 1 of {0}/b.csv has nothing for column 3, where {0}/a.csv has y",
    ),
    "words for numbers in another file": (
        {"a.csv": _with(1, RIGHT[0]), "b.csv": _column(["low", "", "high"] * 20)},
        "column x is 'low' in line 2 of {0}/b.csv, but numbers in {0}/a.csv",
    ),
    "a label that is not there": (_with(1, "x,c,Y_"), "{0}/a.csv has no column y"),
    "a label missing": (_with(12, "1,a,"), "the label y is missing in line 12 of {0}/a.csv; such rows: 1"),
    "a label that is not a number": (
        _column([n / 8 if n % 30 else "NaN" for n in range(1, 61)], "y"),
        "the label y is NaN in line 31 of {0}/a.csv; such rows: 2",
    ),
    "an infinite label": (
        _column([n / 8 if n != 5 else "-inf" for n in range(60)], "y"),
        "the label y is -inf in line 7 of {0}/a.csv",
    ),
    "a word among labels": (_with(17, "1,a,?"), "the label y is ? in line 17 of {0}/a.csv; such rows: 1"),
    "one class": (_column([1] * 60, "y"), "the label y of {0}/a.csv has one value only: 1"),
}
# The same of train-*.csv, and eval-*.csv.
SPLITS = {"train": "train*.csv", "eval": "eval*.csv"}
REFUSED_SPLITS = {
    "no file of a split": ({"train.csv": _with(1, RIGHT[0])}, "no file {0}/eval*.csv, of the split eval"),
    "no row of a split": ({"train.csv": _with(1, RIGHT[0]), "eval.csv": "x,c,y\n"}, "{0}/eval.csv has names only"),
    "points in one split only": (
        {"train.csv": _with(1, RIGHT[0]), "eval.csv": _column(range(60))},
        "column x is '0' in line 2 of {0}/eval.csv, but float in the split train",
    ),
    "points in a later row": (
        {"train.csv": _column(range(60)), "eval.csv": _column([*range(30), 1.5])},
        "column x is '1.5' in line 32 of {0}/eval.csv, but int in the split train",
    ),
    "no value in train": (
        {"train.csv": _column([""] * 60), "eval.csv": _with(1, RIGHT[0])},
        "column x is '0.5' in line 2 of {0}/eval.csv, but without a value in the split train",
    ),
    "a split without labels": ({"train.csv": _with(1, RIGHT[0]), "eval.csv": "x,c\n1,a\n"}, "has nothing for column 3"),
}

# What is doubtful -> a.csv, or the files; the notes.
NOTED = {
    "nothing": (_with(1, RIGHT[0]),),
    "nothing, of a table without names of pandas": (_with(1, "0,1,2"),),
    "a question mark": (
        _with(17, "?,a,1"),
        "numbers that are read as words, because of some cells: x ('?' in line 17 of a.csv; 1 of 60 rows)",
    ),
    "a decimal comma": (
        {"a.csv": _with(3, '"1,5",a,1'), "b.csv": _with(1, RIGHT[0])},
        "numbers that are read as words, because of some cells: x ('1,5' in line 3 of a.csv; 1 of 120 rows)",
    ),
    "an id above 2^63": (
        _column([*range(2**63 - 30, 2**63 + 30)]),
        f"because of some cells: x ('{2**63}' in line 32 of a.csv; 30 of 60 rows)",
        "as an id has: x",
    ),
    "NaN": (_with(5, "NaN,a,1"), "numbers that are not finite: x ('NaN' in line 5 of a.csv; 1 of 60 rows)"),
    "nothing, of words of hexadecimal digits, some of which are numbers": (_column(["035e2982", "8ff34739"] * 30),),
    "None among words": (
        _with(6, "1,None,1"),
        "stand for a missing value, which an empty cell is here: c ('None' in line 6 of a.csv; 1 of 60 rows)",
    ),
    "zip codes": (
        _column(["01234", "98765"] * 30),
        "numbers that lose their first zeros: x ('01234' in line 2 of a.csv; 30 of 60 rows)",
    ),
    "dates": (
        _column([f"2024-01-{n % 28 + 1:02} 10:00" for n in range(60)]),
        "dates, which a model takes for words: x ('2024-01-01 10:00' in line 2 of a.csv; 60 of 60 rows)",
    ),
    "columns without a value": (_column([""] * 60), "columns without a value in the rows read: x"),
    "an id": (_column(range(100, 160)), "another value in each row, as an id has: x"),
    "the label again, in words": (_column(["no", "no", "yes", "yes"] * 15, "c"), "columns that tell the label: c"),
    "a label of three spellings": (
        _column(["Yes", "No", "yes ", "No"] * 15, "y"),
        "classes that differ in case or spaces only: Yes, yes : y ('yes ' in line 4 of a.csv; 15 of 60 rows)",
    ),
    "a label below 0": (
        _with(9, "1,a,-1"),
        "a label below 0 besides 0 and 1: three classes: y ('-1' in line 9 of a.csv; 1 of 60 rows)",
    ),
    "rows of two splits": (
        {"train.csv": _with(1, RIGHT[0]), "eval.csv": "\n".join(["x,c,y", "77.5,a,0", *RIGHT[2:4], "78.5,a,1"])},
        "/eval.csv, in train as well)",
    ),
}


def _read(folder: Path, files: str | bytes | dict[str, str | bytes], label: str = "y") -> TableReading:
    files = files if isinstance(files, dict) else {"a.csv": files}
    write_files(folder, files)
    splits = SPLITS if any(name.startswith("train") for name in files) else {}
    return read_table(str(folder), splits, label)


@pytest.mark.parametrize("case", [*REFUSED.values(), *REFUSED_SPLITS.values()], ids=[*REFUSED, *REFUSED_SPLITS])
def test_what_is_wrong_is_refused(tmp_path, case):
    files, *what = case
    with refused(DataError, *(each.format(tmp_path) for each in what)) as caught:
        _read(tmp_path, files)
    assert caught.value.todo
    assert "\n" not in caught.value.what


@pytest.mark.parametrize("case", NOTED.values(), ids=NOTED)
def test_what_is_doubtful_is_told(tmp_path, case):
    files, *notes = case
    label = "2" if isinstance(files, bytes) and b"0,1,2" in files else "y"
    found = list(_read(tmp_path, files, label).notes())
    assert len(found) == len(notes)
    for note, words in zip(found, notes):
        assert note.endswith(words)


@pytest.mark.parametrize(
    ("name", "content"),
    {
        "a byte-order mark": b"\xef\xbb\xbf" + _with(1, RIGHT[0]),
        "quotes around names": _with(1, '"x","c","y"'),
        "UTF-16": "\n".join(RIGHT).encode("utf-16"),
        "Latin-1": "\n".join(RIGHT).replace("b", "é").encode("latin-1"),
    }.items(),
)
def test_the_advice_leads_to_a_table(tmp_path, name, content):
    with pytest.raises(DataError) as caught:
        _read(tmp_path, {"OLD": content, "a.csv": content})
    (command,) = re.findall("`(.+)`", caught.value.todo)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    (tmp_path / "NEW").replace(tmp_path / "a.csv")
    read_table(str(tmp_path), label="y")


def test_the_advice_for_semicolons_leads_to_a_table(tmp_path):
    import pandas

    names = {"read_csv": pandas.read_csv, "OLD": tmp_path / "a.csv", "NEW": tmp_path / "a.csv"}
    for mark in ";\t":
        with pytest.raises(DataError) as caught:
            _read(tmp_path, {"a.csv": _with(3, "1.5,b,1").replace(b",", mark.encode()).replace(b".", b",")})
        eval(caught.value.todo[caught.value.todo.index("read_csv") :], names)
        found = read_table(str(tmp_path), label="y")
        assert [column.kind for column in found.columns] == ["float", "bytes", "int"]


def test_the_nearest_name_is_suggested(tmp_path):
    with refused(DataError, "no column Y", expected="x, c, y", todo="set data.label to y"):
        _read(tmp_path, {"a.csv": _with(1, RIGHT[0])}, "Y")


def test_columns(tmp_path):
    rows = [f"{n},{n / 2},{'ab'[n % 2]},,1_000,{n or ''}" for n in range(6)]
    write_files(tmp_path, {"d/a.csv": "\n".join(["i,f,w,e,u,m", *rows, "", "-7,1e3, 8,,-1,1.5"])})
    for pattern in ("d", "d/a.csv", "d/*.csv", "*/a.*"):
        found = read_table(str(tmp_path / pattern))
        assert (found.rows, found.is_whole, found.files) == (7, True, (tmp_path / "d/a.csv",))
    assert {column.name: (column.kind, column.missing, column.distinct) for column in found.columns} == {
        "i": ("int", 0, 7),
        "f": ("float", 0, 7),
        "w": ("bytes", 0, 3),
        "e": ("", 7, 0),
        "u": ("int", 0, 2),
        "m": ("float", 1, 6),
    }
    assert {column.name: (column.lowest, column.highest) for column in found.columns if column.kind != "bytes"} == {
        "i": (-7, 5),
        "f": (0, 1000),
        "e": (None, None),
        "u": (-1, 1000),
        "m": (1, 5),
    }
    assert found.column("w").values == {"a": 3, "b": 3, " 8": 1}
    assert found.column("x") is None


def test_a_large_table_is_read_in_part(tmp_path):
    """And in each file, from its head on; what only the rest could tell is not claimed."""
    rows = "".join(f"{n},0\n" for n in range(15_000))
    write_files(tmp_path, {"a.csv": "x,y\n1,0\n", "b.csv": f"x,y\n{rows}1,1\n", "c.csv": f"x,y\n{rows}"})
    found = read_table(str(tmp_path), label="y")
    assert (found.rows, found.is_whole) == (20_000, False)
    assert "one label only in the rows read: y" in list(found.notes())
    with refused(DataError, "line 3 of"):
        _read(tmp_path, {"c.csv": "x,y\n1,1\n1\n"})


def test_five_thousand_columns(tmp_path):
    names = ",".join(f"x{n}" for n in range(5_000))
    write_files(tmp_path, {"a.csv": "\n".join([f"{names},y", *(f"{'0.5,' * 5_000}{n % 2}" for n in range(1000))])})
    start = time.process_time()
    found = read_table(str(tmp_path), label="y")
    assert (len(found.columns), found.rows, found.is_whole) == (5_001, 199, False)
    assert time.process_time() - start < 5


def test_taxi():
    if not TAXI.exists():
        pytest.skip(f"no data of the taxi example at {TAXI}")
    found = read_table(str(TAXI), label="tips")
    assert (found.rows, found.is_whole, len(found.columns)) == (15_002, True, 18)
    kinds = {column.name: column.kind for column in found.columns}
    assert {name for name, kind in kinds.items() if kind == "bytes"} == {"payment_type", "company"}
    assert kinds["fare"] == kinds["tips"] == "float"
    assert kinds["trip_start_hour"] == kinds["pickup_census_tract"] == "int"


@pytest.mark.timeout(120)
def test_csv_example_gen_agrees(tmp_path):
    """On names, kinds, what is missing and what is left out, split by hash."""
    import tensorflow as tf
    from google.protobuf.json_format import MessageToJson
    from tfx.components.example_gen.csv_example_gen.executor import Executor
    from tfx.proto import example_gen_pb2
    from tfx.types.standard_artifacts import Examples

    cells = {
        "i": " 5 ",
        "u": "1_000",
        "big": 2**63 - 1,
        "huge": 2**63,
        "f": "1e3",
        "n": "nan",
        "inf": "-Infinity",
        "w": "?",
    }
    cells |= {"z": "007", "comma": '"1,5"', "two": '"a\nb"', "quote": '5" x 6"', "d": "٣", " s ": "0x10", "none": ""}
    numbers = [("1", "", "2.5")[n % 3] for n in range(12)]
    rows = [",".join([*map(str, cells.values()), mixed]) for mixed in numbers]
    write_files(tmp_path, {"in/a.csv": "\r\n".join([",".join([*cells, "m"]), *rows[:7], "", *rows[7:], ""])})
    found = read_table(str(tmp_path / "in"))
    examples = Examples()
    examples.uri = str(tmp_path / "out")
    splits = example_gen_pb2.SplitConfig(splits=[example_gen_pb2.SplitConfig.Split(name="all", hash_buckets=1)])
    settings = {
        "input_base": str(tmp_path / "in"),
        "input_config": MessageToJson(example_gen_pb2.Input(splits=[{"name": "single", "pattern": "*.csv"}])),
        "output_config": MessageToJson(example_gen_pb2.Output(split_config=splits)),
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
    }
    Executor().Do({}, {"examples": [examples]}, settings)
    records = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{examples.uri}/Split-all/*"), "GZIP").as_numpy_iterator()
    read = [tf.train.Example.FromString(record).features.feature for record in records]
    assert len(read) == found.rows == 12
    assert {name for each in read for name in each} == {column.name for column in found.columns} == {*cells, "m"}
    for column in found.columns:
        values = [getattr(each[column.name], each[column.name].WhichOneof("kind") or "", None) for each in read]
        kinds = {each[column.name].WhichOneof("kind") for each in read}
        assert kinds == {{"int": "int64_list", "float": "float_list", "bytes": "bytes_list", "": None}[column.kind]}
        assert sum(not (held and held.value) for held in values) == column.missing
        if column.kind == "bytes":
            assert {held.value[0].decode() for held in values} == {*column.values}


def test_hidden_files_are_read_as_tfx_reads_them(tmp_path):
    """A Mac leaves ._a.csv, which is no text."""
    with refused(DataError, "._a.csv is not text in UTF-8"):
        _read(tmp_path, {"a.csv": _with(1, RIGHT[0]), "._a.csv": b"\0\5\x16\7\0\2\0\0Mac OS X\xb0"})


def test_tables_of_images_hold_no_features(tmp_path):
    files = {"a/x.csv": "x,y", "a/schema.pbtxt": "", "b/x.csv": "Image,label", "c/x.csv": "x,y", "c/y.png": ""}
    write_files(tmp_path, {**files, "d/x.csv": "x,y", "d/e/x.csv": "x,y", "f/n": ""})
    found = {
        place: find_features(str(tmp_path / place)) for place in ("a/x.csv", "b/x.csv", "?/*.csv", "?/*.png", *"abcdf")
    }
    features = {"a/x.csv", "?/*.csv", "a"}
    assert {place for place, each in found.items() if each} == features


def test_a_label_of_codes_may_have_letters(tmp_path):
    found = _read(tmp_path, {"a.csv": _column(["1", "2", "2", "1", "2b"] * 12, "y")})
    assert found.column("y").values == {"1": 24, "2": 24, "2b": 12}
    assert "because of some cells: y ('2b' in line 6" in next(found.notes())
