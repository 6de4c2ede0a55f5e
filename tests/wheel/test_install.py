"""Installing a wheel like users, by Python's bundled pip, from an empty cache: in minutes, not hours."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
import venv

import pytest

from tests.docs.pages import PAGES, README
from tests.root import ROOT
from tests.stack import HERE
from tests.wheel.conftest import Environment

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

# pip 23.0.1 took 5 minutes on 2 busy cores; without the pins it was still running after 50.
SECONDS = 1800


@pytest.fixture
def fresh(tmp_path):
    """An environment with only Python's own pip."""
    venv.create(tmp_path / "fresh", with_pip=True, symlinks=True)
    return Environment(tmp_path / "fresh")


def test_the_locked_extra_is_one_command_and_the_pipeline_runs(fresh, distributions, tmp_path):
    print(fresh.run("pip", "--version", cwd=tmp_path))
    started = time.monotonic()
    fresh.run(
        "pip", "install", "--no-cache-dir", f"{distributions.wheel}[{HERE.extra}-locked]", cwd=tmp_path, seconds=SECONDS
    )
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    assert "No broken requirements found" in fresh.run("python", "-m", "pip", "check", cwd=tmp_path)
    # The README's four commands; the second has run with the wheel from the first.
    (commands,) = [block.text for block in README.of("sh") if "pip wheel" in block.text]
    wheel, install, *ours = map(shlex.split, commands.splitlines())
    assert (wheel[:2], install[:2], len(ours)) == (["pip", "wheel"], ["pip", "install"], 2)
    shutil.copytree(ROOT / "examples" / "predict", tmp_path / "examples" / "predict")
    trained, predicted = (fresh.run(*words, cwd=tmp_path) for words in ours)
    assert "pushed model" in trained
    header, row, *_ = predicted.splitlines()
    assert header.startswith("file,class,score_0,")
    assert row.startswith("examples/digit.png,5,")


def test_pip_also_ends_without_the_lock_file(fresh, distributions, tmp_path):
    command = ("pip", "install", "--no-cache-dir", "--dry-run", f"{distributions.wheel}[{HERE.extra}]")
    output = fresh.run(*command, cwd=tmp_path, seconds=SECONDS)
    assert "Would install" in output
    for pin in (f"tfx-{HERE.tfx}", f"tensorflow-{HERE.tensorflow}", "tensorflow-estimator-2.15.0"):
        assert pin in output


def test_the_page_of_an_estimator_installs_trains_and_leaves(tmp_path):
    (page,) = (each for each in PAGES if each.name == "docs/estimator.md")
    shutil.copytree(ROOT, tmp_path / "tfx-estimator", symlinks=True, ignore=shutil.ignore_patterns(".*", "runs"))
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    venv.create(tmp_path / "any", symlinks=True)
    commands = [line for block in page.of("sh") for line in block.text.splitlines()]
    assert len(commands) == 6
    for words in map(shlex.split, commands):
        program = sys.executable if words[0].startswith("python") else str(tmp_path / words[0])
        Environment(tmp_path / "any").run(program, *words[1:], cwd=tmp_path, seconds=SECONDS)
    python = str(tmp_path / ".venv" / "bin" / "python")
    Environment(tmp_path / "any").run(python, "go_on.py", cwd=tmp_path)
    assert (tmp_path / "training.keras").exists()
    assert json.loads((tmp_path / "converted" / "proof.json").read_text())["step"] == 60
