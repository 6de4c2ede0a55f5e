"""The folders for temporary files: one per run, no usable place, and a shared lock."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Manager
from pathlib import Path

import pytest

from tests.root import run_python
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.errors import PipelineError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_temporary_files_are_removed_with_the_context(place):
    with scratch.used():
        (home,) = place.iterdir()
        (run,) = home.iterdir()
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(run)
        (run / "__autograph_generated_file.py").write_text("")
        # A run has one folder.
        with scratch.made() as inner:
            assert inner == str(run)
        assert run.exists()
    assert os.environ["TMPDIR"] == str(place)
    assert not list(place.iterdir())


def test_without_a_usable_place_the_error_names_tmpdir(place, tmp_path, monkeypatch, cli):
    folder = place / "missing"
    monkeypatch.setenv("TMPDIR", str(folder))
    stderr = cli("run", "digits", "--workdir", str(tmp_path / "runs"), code=6).err
    assert f"there is no place for temporary files: TMPDIR is {str(folder)!r}" in stderr
    assert "set TMPDIR to one" in stderr


def test_a_folder_of_another_user_is_not_used(place):
    (place / f"tfx-estimator-{os.getuid()}").symlink_to(place)
    with pytest.raises(PipelineError, match="belongs to another user"):
        scratch.Scratch()


def test_a_socket_path_fits_into_it():
    with scratch.made() as folder:
        assert len(folder) - len(os.environ["TMPDIR"]) < 30
    with tempfile.TemporaryDirectory(prefix="tfx-", dir="/tmp") as short, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", short)
        with scratch.used(), Manager() as manager:
            assert manager.list([1])[0] == 1


def test_concurrent_processes_do_not_remove_each_others_folders(place):
    code = (
        "import os; from tfx_estimator.pipeline.base.ending import scratch\n"
        "for _ in range(30):\n"
        "    with scratch.used():\n"
        "        open(os.path.join(os.environ['TMPDIR'], 'x'), 'w').close(); assert os.listdir(os.environ['TMPDIR'])\n"
    )
    with ThreadPoolExecutor(4) as pool:
        assert [done.stderr for done in pool.map(run_python, ["-c"] * 4, [code] * 4)] == [""] * 4
    assert not list(place.iterdir())


def test_a_shared_lock_has_one_holder_and_leaves_no_file(place):
    with scratch.shared_lock("data.lock") as take, scratch.shared_lock("data.lock") as other:
        assert take()
        assert not other()
    assert not list(place.iterdir())
    with scratch.shared_lock("data.lock") as other:
        assert other()
