"""Renamed or copied folders of runs, with other folders at their old paths; real TFX runs and databases."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.pipeline import making
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.log import ROOT
from tfx_estimator.pipeline.folders import PipelineFolders, relocate_artifacts
from tfx_estimator.pipeline.report.artifacts import read_outputs

OLD, NEW = "of the old", "of the new"


@pytest.fixture
def top(tmp_path) -> Path:
    """Folders of runs: `old`, which was created as `runs`, and `runs`, created later; and the file of their word."""
    for word, then in ((OLD, "old"), (NEW, "runs")):
        (tmp_path / "word").write_text(word)
        making.run(PipelineFolders(str(tmp_path / "runs"), "mine"), tmp_path / "word")
        (tmp_path / "runs").rename(tmp_path / then)
    return tmp_path


def uris(folders: PipelineFolders) -> list[str]:
    return [each.uri for each in making.artifacts(folders.metadata)]


def made_in(folders: PipelineFolders) -> list[str]:
    return [f"{folders.root}/Making/model/1", f"{folders.root}/Copying/copied/2"]


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Returns this project's records; libraries log as well if another test has enabled it."""
    return [each for each in caplog.records if each.name.startswith(ROOT)]


def test_tfx_takes_the_artifacts_of_the_folder_that_it_runs_in(top, caplog):
    folders, others = (PipelineFolders(str(top / name), "mine") for name in ("old", "runs"))
    assert uris(folders) == made_in(others)
    with caplog.at_level(logging.INFO, ROOT):
        relocate_artifacts(folders.metadata, folders.home)
    assert uris(folders) == made_in(folders)
    message = f"{folders.home} was moved or copied from {others.home}: its artifacts are used from here"
    assert [(record.getMessage(), record.stays) for record in logged(caplog)] == [(message, True)]
    result = making.run(folders, top / "word")
    assert result.runs["Making"].state == "cached"
    path = making.copied(folders.metadata, result)
    assert (path / "word").read_text() == OLD
    assert path.is_relative_to(folders.home)
    # A second call changes nothing, nor does one for the other folder.
    caplog.clear()
    for each in (folders, others):
        relocate_artifacts(each.metadata, each.home)
    assert logged(caplog) == []
    assert uris(others) == made_in(others)


def test_without_relocation_tfx_uses_the_other_folders_artifacts(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    assert (making.copied(folders.metadata, making.run(folders, top / "word")) / "word").read_text() == NEW


def test_missing_artifacts_are_recomputed_and_not_taken_from_the_other_folder(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    shutil.rmtree(top / "old" / "mine" / "artifacts" / "Making")
    relocate_artifacts(folders.metadata, folders.home)
    (top / "word").write_text("of now")
    result = making.run(folders, top / "word")
    assert result.runs["Making"].state == "ran"
    assert (making.copied(folders.metadata, result) / "word").read_text() == "of now"


def test_a_folder_that_is_moved_back_finds_all_of_its_cache(top):
    shutil.rmtree(top / "runs")
    moved, back = (PipelineFolders(str(top / name), "mine") for name in ("old", "runs"))
    relocate_artifacts(moved.metadata, moved.home)
    (top / "old").rename(top / "runs")
    relocate_artifacts(back.metadata, back.home)
    result = making.run(back, top / "word")
    assert {run.state for run in result.runs.values()} == {"cached"}
    assert making.copied(back.metadata, result) == Path(made_in(back)[1])


def test_properties_with_paths_in_the_folder_are_rewritten_too(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    relocate_artifacts(folders.metadata, folders.home)
    properties = making.artifacts(folders.metadata)[0].custom_properties
    assert properties["pushed_destination"].string_value == f"{folders.serving}/1"
    assert properties["current_model"].string_value == made_in(folders)[0]
    assert properties["elsewhere"].string_value == f"{top}/runs/mine-else/serving/1"


def test_artifacts_imported_from_another_pipelines_folder_keep_their_uris(tmp_path):
    runs, moved = (PipelineFolders(str(tmp_path / name), "mine") for name in ("runs", "old"))
    # The path that a component named Making would give the same output of the same execution.
    theirs = tmp_path / "theirs" / "mine" / "artifacts" / "Making" / "result" / "1"
    theirs.mkdir(parents=True)
    (tmp_path / "word").write_text(OLD)
    result = making.run(runs, tmp_path / "word", str(theirs))
    assert result.runs["Importing"].execution_id == 1
    (tmp_path / "runs").rename(tmp_path / "old")
    relocate_artifacts(moved.metadata, moved.home)
    assert uris(moved) == [str(theirs), f"{moved.root}/Making/model/2", f"{moved.root}/Copying/copied/3"]


def test_a_symlink_to_the_folder_renames_nothing(top):
    (top / "link").symlink_to(top / "runs")
    folders, linked = (PipelineFolders(str(top / name), "mine") for name in ("runs", "link"))
    before = Path(folders.metadata).read_bytes()
    relocate_artifacts(linked.metadata, linked.home)
    assert Path(folders.metadata).read_bytes() == before


def test_all_artifacts_are_renamed_or_none(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    before = uris(folders)
    with contextlib.closing(sqlite3.connect(folders.metadata)) as database, database:
        database.execute(
            "CREATE TRIGGER fails BEFORE UPDATE ON ArtifactProperty BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    with pytest.raises(PipelineError, match=r"metadata\.sqlite cannot be used: disk is full"):
        relocate_artifacts(folders.metadata, folders.home)
    assert uris(folders) == before


def test_a_database_that_another_process_has_locked_is_named(top, monkeypatch):
    folders, connect = PipelineFolders(str(top / "old"), "mine"), sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda name: connect(name, timeout=0.1))
    with contextlib.closing(connect(folders.metadata, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PipelineError, match=r"metadata\.sqlite is locked: another process uses it") as raised:
            relocate_artifacts(folders.metadata, folders.home)
    assert "remove" not in raised.value.todo


def test_reading_outputs_finds_moved_artifacts_and_writes_nothing(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    before = Path(folders.metadata).read_bytes()
    outputs = read_outputs(folders.metadata, {1: "Making", 2: "Copying"})
    assert [outputs[each].uri for each in (("Making", "model"), ("Copying", "copied"))] == made_in(folders)
    assert Path(folders.metadata).read_bytes() == before


def test_artifacts_in_a_bucket_keep_their_uris_unless_the_folder_was_copied(top):
    folders = PipelineFolders(str(top / "old"), "mine")
    with contextlib.closing(sqlite3.connect(folders.metadata)) as database, database:
        database.execute("UPDATE Artifact SET uri = replace(uri, ?, 'gs://bucket/runs')", (str(top / "runs"),))
    key, place = ("Making", "model"), "mine/artifacts/Making/model/1"
    # The folder was copied from the bucket.
    assert read_outputs(folders.metadata, {1: "Making"})[key].uri == f"{top}/old/{place}"
    shutil.rmtree(folders.root)
    assert read_outputs(folders.metadata, {1: "Making"})[key].uri == f"gs://bucket/runs/{place}"
