"""Any declaration is valid, or each problem is reported with its place, and nothing else happens."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.pipeline.config.mutations import mutate
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.yaml_text import read_yaml

COUNT = 150
PLACED = re.compile(r"^  (?:.+:\d+|--set .*?)(?:  |$)", re.MULTILINE)
ONE = re.compile(r"^tfx-estimator: (?:.+:\d+ |the declaration .+ has (\d+) problem)")


def check(number: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Checks one mutation; returns the exit code."""
    mutation = mutate(number)
    file = folder / mutation.file
    file.write_bytes(mutation.content)
    # With `--set=`, a value that starts with a dash is no option.
    sets = [f"--set={override}" for override in mutation.overrides]
    code = main(["validate", str(file), *sets])
    output = capsys.readouterr()
    shown = output.out + output.err
    assert all(character.isprintable() or character == "\n" for character in shown), (number, shown)
    assert "Traceback" not in shown
    if code == 0:
        assert output.err == ""
        assert main(["show", str(file), *sets]) == 0
        shown = capsys.readouterr().out
        assert all(character.isprintable() or character == "\n" for character in shown), (number, shown)
        declaration = load(str(file), mutation.overrides).declaration
        document = read_yaml(shown, "show")
        assert not document.problems
        assert document.value == json.loads(declaration.to_json()), number
        return code
    assert code == 2, (number, shown)
    heading = ONE.match(output.err)
    assert heading, (number, output.err)
    if heading[1]:
        assert len(PLACED.findall(output.err)) == int(heading[1]), (number, output.err)
    return code


def test_mutated_declarations_are_accepted_or_refused_with_places(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir(tmp_path))
    codes = [check(number, tmp_path, capsys) for number in range(COUNT)]
    # Both codes occur, and only the declarations are in the folder.
    assert 0.02 < codes.count(0) / len(codes) < 0.9
    assert all(name.endswith(".yaml") for name in set(os.listdir(tmp_path)) - before)
