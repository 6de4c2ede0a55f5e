"""Offsets of records in real TFRecord files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.artifacts import write_records
from tfx_estimator.data import record_index
from tfx_estimator.data.record_index import index_records
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError

# Bytes of the records of three files; some are longer than one read.
FILES = ([5, 0, 70_000, 12, 300_000, 1, 1], [], [9] * 20_001)


def write(path: Path, sizes: Sequence[int]) -> str:
    return write_records(path, (b"x" * size for size in sizes))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [write(tmp_path / f"file-{number}", sizes) for number, sizes in enumerate(FILES)]


def offsets(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) + 16 * index for index in range(len(sizes) + 1)]


@pytest.mark.parametrize("block", [1, 3, 64])
def test_blocks_are_where_the_records_are(files, block):
    index = index_records([files[0], files[1], write(Path(files[1]).with_name("more"), [4] * 200)], block)
    expected = []
    for number, sizes in ((0, FILES[0]), (2, [4] * 200)):
        edges = offsets(sizes)
        for first in range(0, len(sizes), block):
            end = min(first + block, len(sizes))
            expected.append((number, edges[first], edges[end] - edges[first], end - first))
    assert list(index.blocks) == expected
    assert index.records == len(FILES[0]) + 200


def test_a_huge_data_set_has_larger_blocks(files, monkeypatch):
    monkeypatch.setattr(record_index, "_MAX_BLOCKS", 50)
    index = record_index.index_records(files, 2)
    assert index.records == len(FILES[0]) + len(FILES[2])
    assert 25 <= len(index.blocks) <= 50
    assert index.blocks[1][3] == index.blocks[2][3] == 512  # the first is the whole short file


def test_an_index_is_cached(files, tmp_path):
    folder = str(tmp_path / "training")
    first = record_index.index_records(files, 64, folder)
    (kept,) = (tmp_path / "training").iterdir()
    # Not read again: the file is now no TFRecord file, but has the same length.
    path = Path(files[0])
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert record_index.index_records(files, 64, folder) == first
    kept.write_text("{")
    with pytest.raises(DamagedDataError):
        record_index.index_records(files, 64, folder)


def test_other_files_and_other_blocks_have_separate_indexes(files, tmp_path):
    folder = str(tmp_path / "training")
    for wanted in (files, files[:1], files[2:]):
        for block in (64, 100):
            assert index_records(wanted, block, folder) == index_records(wanted, block)


@pytest.mark.parametrize("missing", [1, 15, 25 * 3 + 1])
def test_an_error_names_a_file_that_ends_within_a_record(files, missing):
    path = Path(files[2])
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(DamagedDataError, match=f"damaged file {path}: it ends within its record"):
        index_records(files, 64)


def test_no_example_is_an_error(files):
    with pytest.raises(DataError, match="there is no training example in file-1"):
        index_records(files[1:2], 64)
    with pytest.raises(DataError, match="there is no training example in no file"):
        index_records([], 64)
