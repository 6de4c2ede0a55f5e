"""Finds runs, and reads their log folders; reads the versions of the packages in use."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import read_json
from tfx_estimator.pipeline.base.installed import version_of
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.yaml_text import leaves
from tfx_estimator.pipeline.folders import former_home, rebased

DECLARATION, SUMMARY, REPORT = "declaration.yaml", "summary.json", "report.html"
CARD = "model_card.md"
# Entries with a path in the pipeline's folder; the first tells where that folder was during the run.
_PLACES = ("model_run", "model", "pushed")
_MODEL_RUN = "artifacts/Trainer/model_run/[0-9]+"
_PACKAGES = (
    "tfx-estimator",
    "tfx",
    "tensorflow",
    "tensorflow-estimator",
    "keras",
    "tf_keras",
    "tensorflow-transform",
    "tensorflow-model-analysis",
    "tensorflow-datasets",
    "apache-beam",
    "ml-metadata",
    "numpy",
)


@dataclass(frozen=True)
class Run:
    """One run, as read from its log folder."""

    logs: str
    text: str  # the resolved declaration, with each value's origin
    summary: dict[str, Any] = field(default_factory=dict)  # empty if the run was killed before it wrote summary.json
    values: dict[str, Any] = field(default_factory=dict)  # the declaration's, by dotted path

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
        """Time of its start, which is the log folder's name."""
        return os.path.basename(self.logs)


def find_runs(named: Sequence[str]) -> list[Run]:
    """Reads runs, each named by its log folder, or by a pipeline's folder for its latest run."""
    runs, wrong = [], []
    for name in named:
        try:
            runs.append(read_run(_find(name)))
        except (OSError, ValueError) as error:
            wrong.append(f"{name!r}: {_reason(error)}")
    if wrong:
        raise DeclarationError(
            "no run can be read there:\n  " + "\n  ".join(wrong) if len(wrong) > 1 else wrong[0],
            expected=f"a run's log folder, which holds {DECLARATION}, or a pipeline's folder, which holds logs/",
            todo="name RUNS/NAME for the latest run of a pipeline, or RUNS/NAME/logs/TIME for another one",
        )
    return runs


def log_folders(logs: str) -> list[str]:
    """Returns the log folders of a pipeline, the latest run's last.

    Their names do not decide: they are local times, which repeat when summer time ends, and differ in a container.
    """
    found = [os.path.join(logs, name) for name in (os.listdir(logs) if os.path.isdir(logs) else ())]
    return sorted((each for each in found if os.path.exists(os.path.join(each, DECLARATION))), key=_start_order)


def read_versions() -> dict[str, str]:
    """Returns the stack, the versions of Python and packages, and a description of the machine."""
    found = {"stack": stacks.current().words, "Python": platform.python_version()}
    for name in _PACKAGES:
        if version := version_of(name):
            found[name] = version
    total, available = os.cpu_count() or 1, available_cpus()
    used = f", {available} of which may be used" if available < total else ""
    found["machine"] = f"{platform.platform(aliased=True)}, {total} CPUs{used}"
    return found


def _start_order(logs: str) -> tuple[int, list[tuple[int, str]]]:
    """Returns a sort key: the start time in the summary, or else the declaration's modification time."""
    # Runs that start in the same second are named -2, -3 and so on; -10 comes after -9.
    name = [(int(digits or 0), text) for digits, text in re.findall(r"([0-9]+)|([^0-9]+)", os.path.basename(logs))]
    try:
        started = read_json(os.path.join(logs, SUMMARY))["started"]
        return int(datetime.datetime.fromisoformat(started).timestamp()), name
    except (OSError, ValueError, KeyError, TypeError):
        return int(os.path.getmtime(os.path.join(logs, DECLARATION))), name


def read_run(logs: str) -> Run:
    """Reads a run; raises OSError without a declaration. What is damaged in its files is left out."""
    with open(os.path.join(logs, DECLARATION), encoding="utf-8", errors="replace") as file:
        text = file.read()
    summary = read_json(os.path.join(logs, SUMMARY)) or {}
    summary.update(_places_here(summary, os.path.dirname(os.path.dirname(os.path.abspath(logs)))))
    try:
        declared = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError:
        declared = None
    values = {".".join(map(str, path)): value for path, value in leaves(declared if isinstance(declared, dict) else {})}
    return Run(os.path.abspath(logs), text if values else "", summary, values)


def _places_here(summary: dict[str, Any], home: str) -> dict[str, str]:
    """Returns the summary's paths of a moved pipeline folder at their present place."""
    # The log folder may have been copied without the artifacts.
    if not os.path.isdir(os.path.join(home, "artifacts")):
        return {}
    places = {name: path for name in _PLACES if isinstance(path := summary.get(name), str) and not is_address(path)}
    former = former_home(places.get(_PLACES[0], ""), _MODEL_RUN, home)
    return {name: rebased(path, former, home) for name, path in places.items()} if former else {}


def _find(name: str) -> str:
    if is_address(name):
        raise ValueError("this is an address, but runs are read from this machine's file systems")
    path = os.path.abspath(os.path.expanduser(name))
    if not os.path.isdir(path):
        raise ValueError("this is not a folder" if os.path.exists(path) else "there is no such folder")
    if os.path.exists(os.path.join(path, DECLARATION)):
        return path
    runs = log_folders(os.path.join(path, "logs"))
    if not runs:
        raise ValueError("this is neither a run's log folder nor a pipeline's folder with a run in it")
    return runs[-1]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{os.path.basename(error.filename or '')}: {error.strerror}"
    return str(error) or type(error).__name__
