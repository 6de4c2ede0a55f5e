"""Finds a run, and reads what it left in its log folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.render import leaves
from tfx_estimator.pipeline.errors import DeclarationError

DECLARATION, SUMMARY = "declaration.yaml", "summary.json"
_TODO = "name RUNS/NAME for the latest run of a pipeline, or RUNS/NAME/logs/TIME for an earlier one"


@dataclass(frozen=True)
class Run:
    """One run, as its log folder tells of it.

    Args:
        logs: The log folder.
        text: The resolved declaration, with where each value came from.
        summary: What summary.json says; empty where the run was killed before it could write one.
        values: The declaration's values, by dotted path.
    """

    logs: str
    text: str
    summary: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """The pipeline's folder."""
        return os.path.dirname(os.path.dirname(self.logs))

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return str(self.values.get("name", os.path.basename(self.home)))

    @property
    def time(self) -> str:
        """When it started, as the name of the log folder says it."""
        return os.path.basename(self.logs)


def find_runs(named: Sequence[str]) -> list[Run]:
    """Finds runs.

    Args:
        named: For each, its log folder, or a pipeline's folder, which means its latest run.

    Returns:
        The runs, in the same order.

    Raises:
        DeclarationError: Something else was named; the message tells of all of it.
    """
    runs, wrong = [], []
    for name in named:
        try:
            runs.append(read_run(_find(name)))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            wrong.append(f"{name!r}: {_reason(error)}")
    if wrong:
        raise DeclarationError(
            "no run can be read there:\n  " + "\n  ".join(wrong) if len(wrong) > 1 else wrong[0],
            expected=f"a run's log folder, which holds {DECLARATION}, or a pipeline's folder, which holds logs/",
            todo=_TODO,
        )
    return runs


def read_run(logs: str) -> Run:
    """Reads what a run left.

    Args:
        logs: Its log folder.

    Raises:
        OSError: There is no declaration, or it cannot be read.
        ValueError: It is damaged.
    """
    with open(os.path.join(logs, DECLARATION), encoding="utf-8") as file:
        text = file.read()
    declared = yaml.safe_load(text)
    if not isinstance(declared, dict):
        raise ValueError(f"{DECLARATION} holds no declaration")
    summary = {}
    if os.path.exists(path := os.path.join(logs, SUMMARY)):
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        if not isinstance(summary, dict):
            raise ValueError(f"{SUMMARY} holds no summary")
    return Run(os.path.abspath(logs), text, summary, {".".join(path): value for path, value in leaves(declared)})


def _find(name: str) -> str:
    if is_address(name):
        raise ValueError("this is an address, and runs are read from the file systems of this machine")
    path = os.path.abspath(os.path.expanduser(name))
    if not os.path.isdir(path):
        raise ValueError("this is no folder" if os.path.exists(path) else "there is no such folder")
    if os.path.exists(os.path.join(path, DECLARATION)):
        return path
    logs = os.path.join(path, "logs")
    times = sorted(os.listdir(logs)) if os.path.isdir(logs) else []
    runs = [each for each in times if os.path.exists(os.path.join(logs, each, DECLARATION))]
    if not runs:
        raise ValueError("this is neither a run's log folder nor a pipeline's folder with a run in it")
    return os.path.join(logs, runs[-1])


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{os.path.basename(error.filename or '')}: {error.strerror}"
    return str(error) or type(error).__name__
