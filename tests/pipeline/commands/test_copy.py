"""`tfx-estimator presets`, and `copy` of one."""

from __future__ import annotations

import os
import runpy
import stat

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", presets.names())
def test_the_copy_is_the_preset_byte_by_byte_and_loads_alike(tmp_path, capsys, name):
    file = tmp_path / "mine.yaml"
    assert main(["copy", name, str(file)]) == 0
    assert file.read_bytes() == presets.path(name).read_bytes()
    assert load(file).declaration == load(name).declaration
    assert f"tfx-estimator run {file}" in capsys.readouterr().out
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_file_is_replaced_only_by_force(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    assert main(["copy", "digits", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(["copy", "digits", str(file), "--force"]) == 0
    assert file.read_bytes() == presets.path("digits").read_bytes()


def test_a_missing_folder_is_not_created(tmp_path, capsys):
    assert main(["copy", "digits", str(tmp_path / "new" / "mine.yaml")]) == 2
    text = capsys.readouterr().err
    assert f"there is no folder {tmp_path / 'new'}" in text
    assert f"mkdir -p {tmp_path / 'new'}" in text
    assert not (tmp_path / "new").exists()


def test_an_unknown_preset_is_refused_with_the_nearest(tmp_path, capsys):
    assert main(["copy", "cifar", str(tmp_path / "x.yaml")]) == 2
    assert "did you mean `cifar10`?" in capsys.readouterr().err
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("name", "variable", "value", "text"),
    [
        ("local_runner", "DECLARATION", "absent.yaml", "absent.yaml"),
        ("vertex_runner", "DECLARATION", "absent.yaml", "absent.yaml"),
        ("local_runner", "WORKDIR", "s3://bucket/runs", "WORKDIR s3://bucket/runs: "),
    ],
)
def test_a_copied_script_reads_environment_variables(tmp_path, monkeypatch, capsys, name, variable, value, text):
    monkeypatch.chdir(tmp_path)
    assert main(["copy", name, "runner.py"]) == 0
    assert "name your declaration in it, or in TFX_ESTIMATOR_DECLARATION" in capsys.readouterr().out
    monkeypatch.delenv("TFX_ESTIMATOR_DECLARATION", raising=False)
    monkeypatch.setenv(f"TFX_ESTIMATOR_{variable}", value)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("runner.py", run_name="__main__")
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_that_is_not_regular_is_never_replaced(tmp_path, capsys, force):
    os.mkfifo(pipe := tmp_path / "pipe")
    (link := tmp_path / "link").symlink_to(pipe)
    (loop := tmp_path / "loop").symlink_to(loop)
    for file in (pipe, link, loop):
        assert main(["copy", "digits", str(file), *force]) == 2
        assert "is not a regular file" in capsys.readouterr().err
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
    assert link.is_symlink()
    assert loop.is_symlink()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_target_of_a_link_is_written(tmp_path, capsys, is_there):
    (folder := tmp_path / "folder").mkdir()
    if is_there:
        (folder / "file").write_text("before")
    (link := tmp_path / "link").symlink_to("folder/file")
    assert main(["copy", "digits", str(link)]) == 2
    assert f"{link} exists" in capsys.readouterr().err
    assert main(["copy", "digits", str(link), "--force"]) == 0
    assert os.readlink(link) == "folder/file"
    assert (folder / "file").read_bytes() == presets.path("digits").read_bytes()
    assert len([*tmp_path.iterdir()]) == 2


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    (file := tmp_path / "mine.yaml").write_text("before")
    file.chmod(0o640)
    assert main(["copy", "digits", str(file), "--force"]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_lists_each_in_one_line_the_smallest_first(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == presets.names()
    assert lines[0].split()[0] == "digits"
    for line in lines:
        assert len(line.split()) > 4
        assert len(line) < 120


def test_shows_one_presets_header(capsys):
    assert main(["presets", "mnist"]) == 0
    text = capsys.readouterr().out
    for part in ("Required overrides:", "data.data_dir=DIR", "Usual overrides:", "Expected result:"):
        assert part in text
    assert "#" not in text
