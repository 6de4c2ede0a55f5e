"""`tfx-estimator presets`, and `copy` of one."""

from __future__ import annotations

import os
import runpy
import stat

import pytest

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config import load


@pytest.mark.parametrize("name", presets.names())
def test_the_copy_is_the_preset_byte_by_byte_and_loads_alike(tmp_path, cli, name):
    file = tmp_path / "mine.yaml"
    assert f"tfx-estimator run {file}" in cli("copy", name, str(file)).out
    assert file.read_bytes() == presets.path(name).read_bytes()
    assert load(file).declaration == load(name).declaration
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_file_is_replaced_only_by_force_and_keeps_its_mode(tmp_path, cli):
    (file := tmp_path / "mine.yaml").write_text("mine")
    file.chmod(0o640)
    assert "--force" in cli("copy", "digits", str(file), code=2).err
    assert file.read_text() == "mine"
    cli("copy", "digits", str(file), "--force")
    assert file.read_bytes() == presets.path("digits").read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_missing_folder_is_not_created(tmp_path, cli):
    text = cli("copy", "digits", str(tmp_path / "new" / "mine.yaml"), code=2).err
    assert f"there is no folder {tmp_path / 'new'}" in text
    assert f"mkdir -p {tmp_path / 'new'}" in text
    assert not (tmp_path / "new").exists()


def test_an_unknown_preset_is_refused_with_the_nearest(tmp_path, cli):
    assert "did you mean `cifar10`?" in cli("copy", "cifar", str(tmp_path / "x.yaml"), code=2).err
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("name", "variable", "value", "text"),
    [
        ("local_runner", "DECLARATION", "absent.yaml", "absent.yaml"),
        ("vertex_runner", "DECLARATION", "absent.yaml", "absent.yaml"),
        ("local_runner", "WORKDIR", "hdfs://node/runs", "WORKDIR hdfs://node/runs: "),
    ],
)
def test_a_copied_script_reads_environment_variables(tmp_path, monkeypatch, cli, capsys, name, variable, value, text):
    monkeypatch.chdir(tmp_path)
    assert "name your declaration in it, or in TFX_ESTIMATOR_DECLARATION" in cli("copy", name, "runner.py").out
    monkeypatch.delenv("TFX_ESTIMATOR_DECLARATION", raising=False)
    monkeypatch.setenv(f"TFX_ESTIMATOR_{variable}", value)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("runner.py", run_name="__main__")
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_that_is_not_regular_is_never_replaced(tmp_path, cli, force):
    os.mkfifo(pipe := tmp_path / "pipe")
    (link := tmp_path / "link").symlink_to(pipe)
    (loop := tmp_path / "loop").symlink_to(loop)
    for file in (pipe, link, loop):
        assert "is not a regular file" in cli("copy", "digits", str(file), *force, code=2).err
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
    assert link.is_symlink()
    assert loop.is_symlink()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_target_of_a_link_is_written(tmp_path, cli, is_there):
    (folder := tmp_path / "folder").mkdir()
    if is_there:
        (folder / "file").write_text("before")
    (link := tmp_path / "link").symlink_to("folder/file")
    assert f"{link} exists" in cli("copy", "digits", str(link), code=2).err
    cli("copy", "digits", str(link), "--force")
    assert os.readlink(link) == "folder/file"
    assert (folder / "file").read_bytes() == presets.path("digits").read_bytes()
    assert len([*tmp_path.iterdir()]) == 2


def test_lists_each_in_one_line_the_smallest_first(cli):
    lines = cli("presets").out.splitlines()
    assert [line.split()[0] for line in lines] == presets.names()
    assert lines[0].split()[0] == "digits"
    for line in lines:
        assert len(line.split()) > 4
        assert len(line) < 120


def test_shows_one_presets_header(cli):
    text = cli("presets", "mnist").out
    for part in ("Required overrides:", "data.data_dir=DIR", "Usual overrides:", "Expected result:"):
        assert part in text
    assert "#" not in text
