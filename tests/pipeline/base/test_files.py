"""Atomic writes, and the ends of long files."""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.folders import GARBLED
from tests.root import ROOT, run_python
from tfx_estimator.pipeline.base.files import finite, make_dated, read_json, read_tail, write_json, write_whole

PRODUCT = ("pipeline", "components", "model_fn", "data")


def test_a_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "größe.json"
    write_json(file, {"size": "ß"}, indent=2)
    write_whole(str(file), "ü")
    assert file.read_bytes() == "ü".encode()
    write_whole(file, b"\x00\xff")
    assert file.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("how", GARBLED)
def test_a_garbled_file_is_none(tmp_path, how):
    file = tmp_path / "file.json"
    assert read_json(file) is None
    for value in ({"steps": 3, "name": "ü"}, [1, 2], "text", 1.5):
        write_json(file, value)
        assert read_json(file, type(value)) == value
        file.write_bytes(GARBLED[how](file.read_bytes()))
        assert read_json(file, type(value)) is None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "file"
    write_whole(file, "before")
    code = (
        "import resource, signal, sys\n"
        "from tfx_estimator.pipeline.base.files import write_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_whole(sys.argv[1], b'x' * 5000)\n"
    )
    assert "File too large" in run_python("-c", code, str(file), PYTHONDONTWRITEBYTECODE="1").stderr
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_runs_that_begin_in_the_same_second_have_their_own_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(make_dated, [tmp_path / "runs"] * 8)]
    assert set(made) == {str(folder) for folder in (tmp_path / "runs").iterdir()}
    assert len(set(made)) == 8
    assert all(re.fullmatch(r"\d{8}-\d{6}(-\d)?", os.path.basename(folder)) for folder in made)


def test_of_concurrent_writers_of_a_new_file_one_succeeds(tmp_path):
    file = tmp_path / "file"

    def write(number: int) -> bool:
        try:
            write_whole(file, str(number), new=True)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        written = [*pool.map(write, range(8))]
    assert [number for number, done in enumerate(written) if done] == [int(file.read_text())]
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_can_be_written_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_whole(tmp_path / "file", "new", new=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_no_other_module_renames_a_file_into_place():
    files = [file for folder in PRODUCT for file in (ROOT / folder).glob("**/*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if "os.replace(" in file.read_text(encoding="utf-8")}
    assert found <= {"pipeline/base/files.py"}


def test_only_the_end_of_a_log_is_read(tmp_path):
    log = tmp_path / "log"
    assert read_tail(log, 3) == []
    log.write_text("one\ntwo\n")
    assert read_tail(log, 3) == ["one", "two"]
    assert read_tail(log, 1) == ["two"]
    # Larger than any memory; and a character is cut in two.
    with open(log, "r+b") as file:
        file.truncate(1 << 42)
        file.seek(0, os.SEEK_END)
        file.write("ü".encode() * 40_000 + b"\nlast\n")
    cut, last = read_tail(str(log), 3)
    assert last == "last"
    assert cut.endswith("ü" * 30_000)


def test_nan_and_infinity_become_null_at_any_depth():
    record = {"a": (1.5, float("nan")), "b": {"c": [float("inf"), "text", None, True, 3]}}
    assert finite(record) == {"a": [1.5, None], "b": {"c": [None, "text", None, True, 3]}}
