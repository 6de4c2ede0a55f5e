"""Shipped declarations, each with a header of required and usual overrides."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
# The embedded ones, then from the smallest to the largest.
_ORDER = ("digits", "cancer", "diabetes", "mnist", "cifar10", "cifar10_resnet")


def names() -> list[str]:
    """Returns the presets' names, those first that need no network."""
    found = {file.stem for file in _FOLDER.glob("*.yaml")}
    return sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def path(name: str) -> Path:
    """Returns a preset's file."""
    return _FOLDER / f"{name}.yaml"


def header(name: str) -> list[str]:
    """Returns the lines of a preset's header, without the comment marks."""
    lines = []
    for line in path(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return lines


def summary(name: str) -> str:
    """Returns what a preset is, in one line."""
    first = header(name)[:1]
    return first[0].partition(": ")[2] if first else ""
