"""Each example is in the README of the examples, and its declarations are valid."""

from __future__ import annotations

import itertools
import re
import runpy
from pathlib import Path

import pytest

from tests.examples import EXAMPLES, commands, copy_example
from tests.folders import write_files
from tfx_estimator.__main__ import main

pytestmark = pytest.mark.unit

# `# or: KEY: VALUE` next to the line of that key; it may replace another key.
ALTERNATIVE = re.compile(
    r"^(?P<indent> +)# or(?:, in place of (?P<other>\w+))?: (?P<entry>(?P<key>\w+): .+)$", re.MULTILINE
)
DECLARATIONS = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.glob("*/*.yaml"))


def test_the_readme_has_all_examples():
    assert sorted(commands()) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize("path", DECLARATIONS, ids=str)
def test_the_declaration_is_valid(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(copy_example(path.parts[0], tmp_path))
    for command in itertools.takewhile(lambda command: path.name not in command, commands()[path.parts[0]]):
        if command[0] == "python":  # its data
            runpy.run_path(command[1], run_name="__main__")
    # Outputs of the previous example.
    weights = ("variables.index", "variables.data-00000-of-00001")
    write_files(Path("runs/scaling/serving/1/variables"), dict.fromkeys(weights, ""))
    assert main(["validate", path.name]) == 0
    assert capsys.readouterr().out.startswith("ok: ")
    assert any(path.name in command for command in commands()[path.parts[0]])


ALTERNATIVES = {
    f"{path.stem}: {found['entry']}": (path, found)
    for path in sorted((EXAMPLES / "by_feature").glob("*.yaml"))
    for found in ALTERNATIVE.finditer(path.read_text())
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_the_alternatives_in_an_example_are_valid(name, tmp_path, monkeypatch, capsys):
    path, found = ALTERNATIVES[name]
    monkeypatch.chdir(copy_example("by_feature", tmp_path))
    # Only in its section.
    before, _, after = path.read_text().partition(found[0])
    start = re.search(r".*^(?=\w)", before, re.MULTILINE | re.DOTALL).end()
    text = before[start:] + found[0] + after
    for key in filter(None, (found["key"], found["other"])):
        text, count = re.subn(rf"^{found['indent']}{key}: .+\n", "", text, flags=re.MULTILINE)
        assert count == 1
    text = text.replace(found[0], f"{found['indent']}{found['entry']}")
    Path("other.yaml").write_text(before[:start] + text)
    assert main(["validate", "other.yaml"]) == 0
    assert capsys.readouterr().out.startswith("ok: ")


def test_techniques_without_an_example_of_their_own_are_alternatives():
    alternatives = " ".join(ALTERNATIVES)
    for each in ("outer_momentum", "num_packs", "bayesian", "hyperband", "scaling: sqrt", "mixed_float16", "fp16"):
        assert each in alternatives
