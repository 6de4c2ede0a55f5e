"""Whole runs, started like a user's: real commands in their own processes."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2

from tests.faults.file_operations import Forks
from tests.root import ROOT, run_python


def open_metadata(home: Path) -> Any:
    """Opens the store of ML Metadata in a folder."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(home / "metadata.sqlite")
    return metadata_store.MetadataStore(config)


def read_executions(home: Path) -> list[tuple[str, str]]:
    """Returns the component and the state of each execution, sorted."""
    store, name = open_metadata(home), metadata_store_pb2.Execution.State.Name
    kinds = {kind.id: kind.name.rsplit(".", 1)[-1] for kind in store.get_execution_types()}
    return sorted((kinds[each.type_id], name(each.last_known_state)) for each in store.get_executions())


def states_of(summary: dict[str, Any]) -> dict[str, str]:
    """Returns the state of each component of a run."""
    return {run["node"]: run["state"] for run in summary["components"]}


class Workdir:
    def __init__(self, path: Path, python: str = sys.executable) -> None:
        self.path = path
        self._python = python

    def run(self, *args: str, code: int = 0, seconds: float = 280, cwd: Path = ROOT, dry_run: bool = False) -> str:
        """Runs `tfx-estimator run` in this folder, without a report by default."""
        words = ["run", "--no-report", *args, "--workdir", str(self.path), *([] if dry_run else ["--no-dry-run"])]
        done = run_python("-m", "tfx_estimator", *words, python=self._python, timeout=seconds, cwd=cwd, code=code)
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed
        return printed

    def run_unread(self, *args: str, seconds: float = 280) -> str:
        """Does the same with a reader that closes the pipe after the first line, like `head -1`."""
        command = [sys.executable, "-m", "tfx_estimator", "run", *args, "--workdir", str(self.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as run:
            assert run.stdout.readline()
            run.stdout.close()
            try:
                _, printed = run.communicate(timeout=seconds)
            finally:
                run.kill()
        assert run.returncode == 0, printed
        return printed

    def summary(self, name: str) -> dict[str, Any]:
        path = sorted((self.path / name / "logs").glob("*/summary.json"))[-1]
        return json.loads(path.read_text())

    def states(self, name: str) -> dict[str, str]:
        return states_of(self.summary(name))

    def executions(self, name: str) -> dict[str, collections.Counter]:
        """Counts the executions of each component in each state."""
        counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for kind, state in read_executions(self.path / name):
            counts[kind][state] += 1
        return counts


class ForkedWorkdir(Workdir):
    """A folder whose runs are forked from a process that has imported what they need: each is seconds shorter.

    They have no watcher, unlike runs in their own processes.
    """

    def __init__(self, path: Path, forks: Forks) -> None:
        super().__init__(path)
        self._forks = forks

    def run(self, *args: str, code: int = 0, seconds: float = 280, cwd: Path = ROOT, dry_run: bool = False) -> str:
        """See Workdir; the current folder is this project's."""
        assert cwd == ROOT
        return self.call(
            "run", "--no-report", *args, *([] if dry_run else ["--no-dry-run"]), code=code, seconds=seconds
        )

    def call(self, *words: str, code: int = 0, seconds: float = 280) -> str:
        pid = self._forks.start([*words, "--workdir", str(self.path)])
        late = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
        late.start()
        ended = self._forks.wait(pid)
        late.cancel()
        assert ended == code, self._forks.output
        assert "Traceback" not in self._forks.output
        return self._forks.output


@dataclasses.dataclass(frozen=True)
class Finished:
    """The outputs of a preset's run, before any other run in its folder."""

    workdir: Workdir
    output: str
    summary: dict[str, Any]
    versions: list[str]
    examples: Path
    logs: Path
    # A copy of the work folder.
    kept: Path

    @classmethod
    def of(cls, workdir: Workdir, name: str, *args: str) -> Finished:
        output = workdir.run(name, *args)
        home = workdir.path / name
        (logs,) = (home / "logs").iterdir()
        (examples,) = (home / "artifacts" / "TfdsExampleGen" / "examples").iterdir()
        versions = [str(version) for version in (home / "serving").iterdir()]
        kept = shutil.copytree(workdir.path, workdir.path.parent / "kept")
        return cls(workdir, output, workdir.summary(name), versions, examples / "Split-eval", logs, kept)


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of the preset digits, for all tests that read its outputs or continue from it."""
    return Finished.of(Workdir(tmp_path_factory.mktemp("digits") / "runs"), "digits", "--report")


@pytest.fixture
def digits_alone(digits_run: Finished, tmp_path: Path) -> Workdir:
    """A copy of the work folder from the end of that run."""
    return Workdir(shutil.copytree(digits_run.kept, tmp_path / "alone"))


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path / "runs")


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Forks of whole runs."""
    forks = Forks("tests.e2e.whole_run:run", tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


@pytest.fixture
def forked(tmp_path: Path, forks: Forks) -> ForkedWorkdir:
    return ForkedWorkdir(tmp_path / "runs", forks)


@pytest.fixture(scope="session")
def served_digits(digits_run: Finished, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Outputs of the pushed model, loaded in a fresh process, for the evaluation examples."""
    path, script = tmp_path_factory.mktemp("served") / "all.npz", Path(__file__).with_name("serve_images.py")
    run_python(str(script), digits_run.versions[0], str(digits_run.examples), str(path), code=0)
    return dict(np.load(path))
