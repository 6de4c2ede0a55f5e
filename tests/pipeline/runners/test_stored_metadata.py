"""The database of a pipeline whose artifacts are in an object store; a folder stands in for the store."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline

from tests.pipeline import making
from tfx_estimator.components.trainer.training_claim import ClaimFile
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners.buckets import StoredMetadata
from tfx_estimator.pipeline.runners.local import LocalRunner, _Silent


class Machine(PipelineFolders):
    """The folders of one pipeline, as one machine sees them."""

    here = Path()

    @property
    def local(self) -> str:
        return str(self.here)


@pytest.fixture
def machine(tmp_path):
    def make(name: str) -> Machine:
        folders = Machine(str(tmp_path / "store"), "mine")
        object.__setattr__(folders, "here", tmp_path / name)
        folders.here.mkdir(exist_ok=True)
        return folders

    return make


def note(folders: Machine, word: str) -> None:
    with contextlib.closing(sqlite3.connect(folders.metadata)) as database, database:
        database.execute("create table if not exists words (word text)")
        database.execute("insert into words values (?)", (word,))


def add(folders: Machine, word: str) -> None:
    StoredMetadata(folders).fetch()
    note(folders, word)
    StoredMetadata(folders).store()


def noted(folders: Machine) -> list[str]:
    with contextlib.closing(sqlite3.connect(folders.metadata)) as database:
        return [word for (word,) in database.execute("select word from words")]


def test_another_machine_fetches_the_stored_database(machine):
    one, other = machine("one"), machine("other")
    add(one, "a")
    StoredMetadata(other).fetch()
    assert noted(other) == ["a"]
    note(other, "b")
    StoredMetadata(other).store()
    StoredMetadata(one).fetch()
    assert noted(one) == ["a", "b"]
    assert {path.name for path in one.here.iterdir()} == {"metadata.sqlite", "metadata.sqlite.stored"}


def test_changes_of_a_killed_run_are_kept_unless_the_stored_database_was_removed(machine, tmp_path):
    one = machine("one")
    add(one, "a")
    note(one, "b")
    StoredMetadata(one).fetch()
    assert noted(one) == ["a", "b"]
    (tmp_path / "store" / "mine" / "metadata.sqlite").unlink()
    StoredMetadata(one).fetch()
    assert not Path(one.metadata).exists()


def test_a_database_stored_by_another_machine_is_not_overwritten(machine):
    one, other = machine("one"), machine("other")
    add(one, "a")
    add(other, "b")
    note(one, "c")
    with pytest.raises(PipelineError, match="was changed or removed while this run used it"):
        StoredMetadata(one).store()
    StoredMetadata(one).fetch()
    assert noted(one) == ["a", "b"]


@pytest.mark.parametrize("removed", [False, True])
def test_the_journal_of_a_killed_run_is_not_replayed_into_another_database(machine, tmp_path, removed):
    one, other = machine("one"), machine("other")
    add(one, "a")
    add(other, "b")
    # Killed in a transaction that is partly on disk.
    killed = (
        "import os, sqlite3, sys; database = sqlite3.connect(sys.argv[1]); database.execute('pragma cache_size = 1'); "
        "[database.execute('insert into words values (?)', ('x' * 3000,)) for _ in range(99)]; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", killed, one.metadata], check=True)
    assert Path(f"{one.metadata}-journal").stat().st_size > 0
    if removed:
        (tmp_path / "store" / "mine" / "metadata.sqlite").unlink()
    StoredMetadata(one).fetch()
    assert not Path(f"{one.metadata}-journal").exists()
    assert removed or noted(one) == ["a", "b"]


def test_the_number_of_an_execution_is_stored_before_it_starts_and_its_failure_after(machine, tmp_path):
    def states(database: Path) -> list[int]:
        with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(database))) as handle:
            return [execution.last_known_state for execution in handle.store.get_executions()]

    folders, stored, seen = machine("one"), tmp_path / "store" / "mine" / "metadata.sqlite", tmp_path / "seen.sqlite"
    connection = metadata.sqlite_metadata_connection_config(folders.metadata)
    components = [making.Failing(stored=str(stored), seen=str(seen))]
    runner = LocalRunner(_Silent())
    runner._stored = StoredMetadata(folders)
    with pytest.raises(ValueError, match=r"Failing/model/1"):
        runner.run(Pipeline("mine", folders.root, components=components, metadata_connection_config=connection))
    # A run after a kill uses another number.
    assert states(seen) == [metadata_store_pb2.Execution.RUNNING]
    assert states(stored) == [metadata_store_pb2.Execution.FAILED]


def test_artifacts_copied_within_the_store_are_found_in_the_copy(machine, tmp_path):
    (tmp_path / "word").write_text("any")
    one = machine("one")
    making.run(one, tmp_path / "word")
    StoredMetadata(one).store()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    other = dataclasses.replace(machine("other"), workdir=str(tmp_path / "copy"))
    object.__setattr__(other, "here", tmp_path / "other")
    kept = StoredMetadata(other)
    with kept.used():
        kept.store()
    wanted = [f"{tmp_path}/copy/mine/artifacts/{each}" for each in ("Making/model/1", "Copying/copied/2")]
    for database in (other.metadata, f"{tmp_path}/copy/mine/metadata.sqlite"):
        assert [each.uri for each in making.artifacts(database)] == wanted


def test_a_database_in_use_by_another_machine_is_refused(machine, monkeypatch):
    one, other = machine("one"), machine("other")
    with StoredMetadata(one).used():
        # Like a live machine, which rewrites the claim with a new beat.
        read, beats = ClaimFile.read, iter(range(1, 100))
        elsewhere = {"space": "elsewhere"}
        monkeypatch.setattr(ClaimFile, "read", lambda claim: {**read(claim), **elsewhere, "beat": next(beats)})
        with pytest.raises(PipelineError, match="another machine is using"), StoredMetadata(other).used():
            pass
    monkeypatch.undo()
    assert not Path(other.metadata).exists()


def test_a_store_that_cannot_be_used_is_an_error(machine, tmp_path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(PipelineError, match="cannot be used") as caught:
        StoredMetadata(machine("one")).fetch()
    assert "bucket" in caught.value.expected
