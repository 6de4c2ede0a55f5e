"""`tfx-estimator run`: what it refuses before TensorFlow starts."""

from __future__ import annotations

import sys

import pytest

from tfx_estimator.__main__ import main

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("workdir", "text"),
    [("exp[1]/runs", "holds `[`, a wildcard"), ("file", "this is no folder"), ("file/runs", "file is no folder")],
)
def test_a_workdir_that_cannot_hold_a_run_is_refused_at_once(tmp_path, monkeypatch, capsys, workdir, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    loaded = set(sys.modules)
    assert main(["run", "digits", "--workdir", workdir]) == 2
    said = capsys.readouterr().err
    assert f"--workdir {workdir}: " in said
    assert text in said
    assert not {name for name in set(sys.modules) - loaded if name.startswith("tensorflow")}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
