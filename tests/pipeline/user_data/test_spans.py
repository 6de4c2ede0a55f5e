"""Days of a table: the files that TFX's ExampleGen takes for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.components.example_gen import utils
from tfx.proto import example_gen_pb2, range_config_pb2

from tfx_estimator.pipeline.config.data import DataSection, Spans, Splits
from tfx_estimator.pipeline.user_data.spans import find_spans, join_patterns, split_pattern, wrong_tokens


def _write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a,y\n1,0\n")
    return folder


@pytest.mark.parametrize(
    ("pattern", "names", "found"),
    [
        ("day-{SPAN}/*.csv", ("day-1/a.csv", "day-12/a.csv", "day-12/b.csv", "day-x/a.csv", "day-03/a.csv"), [1, 12]),
        ("day-{SPAN:2}.csv", ("day-01.csv", "day-03.csv"), [1, 3]),
        ("{YYYY}-{MM}-{DD}/*.csv", ("1970-01-03/a.csv", "2026-05-01/a.csv"), [2, 20574]),
        ("day-{SPAN}/v{VERSION}/*.csv", ("day-1/v1/a.csv", "day-1/v10/a.csv", "day-2/v9/a.csv"), [1, 2]),
        ("x[12]/{SPAN}/p?.csv", ("x1/7/p1.csv", "x2/8/p1.csv", "x3/9/p1.csv", "x1/7/q/p1.csv"), [7, 8]),
    ],
)
def test_the_days_and_their_files_are_those_of_tfx(tmp_path, pattern, names, found):
    folder = _write(tmp_path, *names)
    spans = find_spans(str(folder), pattern)
    assert list(spans) == found
    for span, files in spans.items():
        only = range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
        _, taken, version = utils.calculate_splits_fingerprint_span_and_version(
            str(folder),
            [split := example_gen_pb2.Input.Split(name="all", pattern=pattern)],
            range_config_pb2.RangeConfig(static_range=only),
        )
        assert (taken, split.pattern) == (span, files)
        assert version == (10 if "v10" in files else 9 if "v9" in files else None)
    together = join_patterns(pattern, spans.values())
    assert list(split_pattern(together)) == list(spans.values())


def test_a_date_that_is_none_and_tokens_that_tfx_would_not_take_are_told(tmp_path):
    _write(tmp_path, "2026-02-30/a.csv", "2026-02-28/a.csv")
    assert list(find_spans(str(tmp_path), "{YYYY}-{MM}-{DD}/*.csv")) == [20512]
    assert not wrong_tokens("a-{SPAN}/v{VERSION}.csv")
    for wrong in ("{SPAN}/{SPAN}.csv", "{YYYY}/{MM}.csv", "{SPAN}-{YYYY}-{MM}-{DD}.csv", "{VERSION}.csv"):
        assert "neither one {SPAN}" in wrong_tokens(wrong)
    for wrong in ("day{SPAN}*.csv", "*{SPAN}/a.csv"):
        assert "digits of other days" in wrong_tokens(wrong)
    assert "twice" in wrong_tokens("{SPAN}/{VERSION}/{VERSION}.csv")


def test_the_window_is_of_the_last_days_that_have_files_of_each_split(tmp_path):
    _write(tmp_path, *(f"day-{day}/{split}-1.csv" for day in (1, 2, 5, 9) for split in ("train", "eval")))
    _write(tmp_path, "day-10/train-1.csv")
    splits = Splits(train="train-*.csv", eval="eval-*.csv")
    table = DataSection(csv=f"{tmp_path}/day-{{SPAN}}", splits=splits, spans=Spans(last=2)).table()
    assert (table.spans, table.before) == ((5, 9), 2)
    assert table.patterns == {"train": "day-{SPAN}/train-*.csv", "eval": "day-{SPAN}/eval-*.csv"}
    assert table.read() == (
        str(tmp_path),
        {"train": "day-{5,9}/train-*.csv", "eval": "day-{5,9}/eval-*.csv"},
    )
    assert table.days == "day-5/train-*.csv to day-9/train-*.csv"
    everything = DataSection(csv=f"{tmp_path}/day-{{SPAN}}/train*", spans=Spans(last=9)).table()
    assert (everything.spans, everything.before, everything.pattern) == (
        (1, 2, 5, 9, 10),
        None,
        "day-{SPAN}/train*",
    )
