"""Each example is in the README of the examples, and is a declaration without a problem."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.examples import EXAMPLES, commands, copy_example
from tfx_estimator.__main__ import main

pytestmark = pytest.mark.unit

DECLARATIONS = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.glob("*/*.yaml"))


def test_the_readme_has_them_all():
    assert sorted(commands()) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize("path", DECLARATIONS, ids=str)
def test_the_declaration_is_valid(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(copy_example(path.parts[0], tmp_path))
    if Path("draw_images.py").exists():
        runpy.run_path("draw_images.py")
    # What the example before it leaves.
    weights = Path("runs/scaling/serving/1/variables/variables.index")
    weights.parent.mkdir(parents=True)
    weights.touch()
    weights.with_name("variables.data-00000-of-00001").touch()
    assert main(["validate", path.name]) == 0
    assert capsys.readouterr().out.startswith("ok: ")
    assert any(path.name in command for command in commands()[path.parts[0]])
