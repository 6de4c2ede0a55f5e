"""Folders that a run would write into: refused before anything starts, and never created by the check."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.paths import check_workdir, reject_folder


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder with a file, a link to nowhere and a folder in it."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "new", "new/and/deep", "folder/new"])
def test_a_folder_that_can_be_made_passes_and_is_not_made(folders, name):
    before = sorted(folders.rglob("*"))
    assert reject_folder(str(folders / name)) == ""
    assert check_workdir(str(folders / name)) is None
    assert sorted(folders.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "this is no folder"),
        ("file/in/it", "file is no folder"),
        ("link/new", "link is no folder"),
        ("a" * 300, "the path cannot be used: File name too long"),
    ],
)
def test_a_folder_that_cannot_be_made_is_refused(folders, name, reason):
    assert reject_folder(os.path.join(folders, name)).endswith(reason)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(folders):
    (folders / "folder").chmod(0o555)
    assert "cannot be written" in reject_folder(str(folders / "folder" / "new"))


@pytest.mark.parametrize("character", ["*", "?", "["])
def test_a_workdir_that_is_a_file_pattern_is_refused(folders, monkeypatch, character):
    folder = folders / f"exp{character}1"
    folder.mkdir()
    for workdir in (str(folder), str(folder / "runs")):
        with pytest.raises(DeclarationError, match=r"--workdir .* holds `.`, a wildcard .*\n  expected: .*\n  to do: "):
            check_workdir(workdir)
    # A relative one lies in the current folder, whose name counts.
    monkeypatch.chdir(folder)
    with pytest.raises(DeclarationError, match="--workdir runs: the path"):
        check_workdir("runs")


@pytest.mark.parametrize(
    ("destination", "reason"),
    [("file", "this is no folder"), ("file/serving", "file is no folder"), ('""', "it is empty")],
)
def test_a_push_destination_is_checked(folders, refuse, good, destination, reason):
    message = refuse(good + f"pusher: {{destination: {destination}}}\n")
    assert "mine.yaml:8  pusher.destination" in message
    assert reason in message
    assert "`serving` in the work folder" in message


@pytest.mark.parametrize("key", ["pusher.destination", "data.data_dir", "data.dataset"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("hdfs://node/x.csv", "the object stores that are read and written here"),
        ("$HOME/x", "environment variables are expanded only in braces"),
        ("~nosuchuser/x", "there is no user 'nosuchuser'"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(refuse, good, key, value, reason):
    message = refuse(good, [f"{key}={value}"])
    assert "has 1 problem\n" in message
    assert f"--set {key}={value}  {key}: {value}\n" in message
    assert reason in message


@pytest.mark.parametrize("root", ["gs://bucket/${NO_SUCH_DAY}", "/mnt/${NO_SUCH_DAY}"])
def test_a_pipeline_root_with_a_variable_that_is_not_set_is_refused(problems, good, root):
    [problem] = problems(f"{good}deploy: {{pipeline_root: '{root}'}}\n")
    assert "NO_SUCH_DAY is not set" in problem


def test_a_folder_may_have_a_name_like_a_variable(tmp_path, monkeypatch, good):
    (tmp_path / "$HOME").mkdir()
    (tmp_path / "$HOME" / "mine.yaml").write_text(good + "pusher: {destination: served}\n")
    assert load(tmp_path / "$HOME" / "mine.yaml").declaration.pusher.destination == f"{tmp_path}/$HOME/served"


def test_the_files_that_the_code_reads_are_next_to_the_declaration(tmp_path, monkeypatch):
    (folder := tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "own.yaml").write_text(
        "name: own\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        "transform: {files: [mean.npy, gs://bucket/std.npy]}\n"
        "trainer: {model: mnist_cnn, train_steps: 1, files: [../words]}\n"
    )
    with pytest.raises(DeclarationError, match=r"(?s)transform\.files: .*no such file.*trainer\.files: .*no such file"):
        load(folder / "own.yaml")
    (folder / "mean.npy").touch()
    (tmp_path / "words").mkdir()
    declaration = load(folder / "own.yaml").declaration
    assert declaration.transform.files == (str(folder / "mean.npy"), "gs://bucket/std.npy")
    assert declaration.trainer.files == (str(tmp_path / "words"),)
    assert load("digits", ["trainer.files=[./words]"]).declaration.trainer.files == (str(tmp_path / "words"),)
    with pytest.raises(DeclarationError, match="in braces"):
        load("digits", ["trainer.files=[$HOME/words]"])
