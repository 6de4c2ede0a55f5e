"""What is said when something of the machine is used up, by the errors that others make of it."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.run.explain import explain

pytestmark = pytest.mark.unit


def said(error: BaseException, log: Path) -> str:
    told = explain(error, "Transform", str(log))
    assert isinstance(told, PipelineError)
    return told.what.removeprefix("component Transform failed: ")


def of_the_system(number: int, *path: str) -> OSError:
    return OSError(number, os.strerror(number), *path)


# By `mount -o`: what a file system of this size has none of any more.
FULL = {"size=64k": "is full", "nr_inodes=8": "has no inodes left of 8"}
# A line for each way of writing.
FILL = """
import os, sys
import tensorflow as tf
from tfx_estimator.pipeline.run.explain import explain

def write(way, name):
    if way == "python":
        with open(name, "wb") as file:
            file.write(bytes(16384))
    else:
        with tf.io.gfile.GFile(name, "wb") as file:
            file.write(bytes(16384))


folder = sys.argv[1]
for way in ("python", "tensorflow", "beam"):
    try:
        for number in range(100):
            write(way, os.path.join(folder, f"{way}-{number}"))
    except Exception as error:
        # As Beam tells of what was raised in its workers.
        told = RuntimeError(f"{error} [while running 'Write']") if way == "beam" else error
        print(explain(told, "Transform", os.path.join(folder, "run.log")).what)
"""


@pytest.mark.parametrize("options", FULL)
def test_a_full_file_system_is_named_with_what_it_has_none_of(tmp_path, options):
    script = tmp_path / "fill.py"
    script.write_text(FILL)
    (folder := tmp_path / "small").mkdir()
    fill = f'mount -t tmpfs -o {options} tmpfs "{folder}" && echo mounted && "{sys.executable}" "{script}" "{folder}"'
    command = ["unshare", "-m", "sh", "-c", fill]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    mounted, *lines = done.stdout.splitlines() or [""]
    if mounted != "mounted":
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert lines == [f"component Transform failed: the disk of {folder} {FULL[options]}"] * 3, done.stderr


def test_a_database_on_a_full_disk_is_told_by_the_folder_of_the_run(tmp_path):
    error = RuntimeError("Error when executing query: database or disk is full query:  INSERT INTO `Attribution`")
    assert said(error, tmp_path / "pipeline.log").startswith(f"the disk of {tmp_path} ")


def test_a_database_that_cannot_be_opened_where_there_is_room_is_something_else(tmp_path):
    error = sqlite3.OperationalError("unable to open database file")
    assert "the disk of" not in str(explain(error, "Transform", str(tmp_path / "pipeline.log")))


def test_no_more_files_may_be_open(tmp_path):
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for error in (of_the_system(errno.EMFILE, "/any"), ValueError("/any; Too many open files")):
        assert said(error, tmp_path / "log") == f"no more than {most:,} files may be open"


def test_a_file_of_data_that_cannot_be_opened_for_that_is_not_damaged(tmp_path):
    from tfx_estimator.data.sources.files import reading

    with pytest.raises(OSError, match="Too many open files"), reading("/any"):
        raise of_the_system(errno.EMFILE, "/any")


@pytest.mark.parametrize(
    "error", [MemoryError(), of_the_system(errno.ENOMEM), RuntimeError("can't start new thread")], ids=repr
)
def test_the_memory_is_used_up(tmp_path, error):
    beams = RuntimeError("[while running 'Write']")
    beams.__cause__ = error
    assert said(beams, tmp_path / "log") == "the memory is used up"
