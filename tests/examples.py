"""Copies of the folders of `examples/`, and the commands in their README."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.root import ROOT

EXAMPLES = ROOT / "examples"
_SECTION = re.compile(
    r"^## \[(?P<name>[\w-]+)\]\((?P=name)/\).*?\n```sh\n(?P<commands>.*?)```", re.MULTILINE | re.DOTALL
)


def commands() -> dict[str, list[list[str]]]:
    """Returns the commands of each example in the README."""
    text = (EXAMPLES / "README.md").read_text()
    return {
        found["name"]: [line.split() for line in found["commands"].splitlines()] for found in _SECTION.finditer(text)
    }


def copy_example(name: str, folder: Path) -> Path:
    """Copies an example without the results of earlier runs."""
    ignored = shutil.ignore_patterns("runs", "prepared", "images", "__pycache__")
    return shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file} has no {old!r}"
    file.write_text(text.replace(old, new))
