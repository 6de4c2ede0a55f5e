"""Files that are there whole or not at all, and the ends of long ones."""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.root import ROOT, run_python
from tfx_estimator.pipeline.base.files import finite, make_dated, read_tail, write_json, write_whole

pytestmark = pytest.mark.unit

PRODUCT = ("pipeline", "components", "model_fn", "data")


def test_a_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "größe.json"
    write_json(file, {"size": "ß"}, indent=2)
    write_whole(str(file), "ü")
    assert file.read_bytes() == "ü".encode()
    write_whole(file, b"\x00\xff")
    assert file.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
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


def test_those_that_begin_in_one_second_have_a_folder_each(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(make_dated, [tmp_path / "runs"] * 8)]
    assert set(made) == {str(folder) for folder in (tmp_path / "runs").iterdir()}
    assert len(set(made)) == 8
    assert all(re.fullmatch(r"\d{8}-\d{6}(-\d)?", os.path.basename(folder)) for folder in made)


def test_of_those_that_write_a_new_file_at_once_one_does(tmp_path):
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


def test_a_file_system_without_links_has_new_files_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_whole(tmp_path / "file", "new", new=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_no_part_of_the_product_renames_a_file_into_place_by_itself():
    files = [file for folder in PRODUCT for file in (ROOT / folder).glob("**/*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if "os.replace(" in file.read_text(encoding="utf-8")}
    assert found <= {"pipeline/base/files.py"}


def test_the_end_of_a_log_is_read_and_no_more_of_it(tmp_path):
    log = tmp_path / "log"
    assert read_tail(log, 3) == []
    log.write_text("one\ntwo\n")
    assert read_tail(log, 3) == ["one", "two"]
    assert read_tail(log, 1) == ["two"]
    # More than any memory holds; and a letter is cut in two.
    with open(log, "r+b") as file:
        file.truncate(1 << 42)
        file.seek(0, os.SEEK_END)
        file.write("ü".encode() * 40_000 + b"\nlast\n")
    cut, last = read_tail(str(log), 3)
    assert last == "last"
    assert cut.endswith("ü" * 30_000)


def test_what_is_no_number_is_null_however_deep():
    told = {"a": (1.5, float("nan")), "b": {"c": [float("inf"), "text", None, True, 3]}}
    assert finite(told) == {"a": [1.5, None], "b": {"c": [None, "text", None, True, 3]}}
