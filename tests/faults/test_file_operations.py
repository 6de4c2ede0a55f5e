"""The Trainer's publication and the Pusher are ended before each of their file operations."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from pathlib import Path

import pytest

from tests.faults.file_operations import Forks, Operation, need_strace
from tests.folders import GARBLED, contents

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

KILL, STOP, INTERRUPT, FULL = "signal=KILL", "signal=TERM", "signal=INT", "error=ENOSPC"
# Operations in a serving folder that need disk space; a rename may need a block for the folder.
NEED_ROOM = ("openat", "mkdir", "write", "fsync", "rename")


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    need_strace()
    forks = Forks("tests.faults.publications:call", tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def models(forks, tmp_path_factory) -> list[Path]:
    """Two model artifacts, the first of a model that adds 1."""
    home = tmp_path_factory.mktemp("models")
    one, other = home / "1" / "Format-Serving", home / "2" / "Format-Serving"
    forks.run("save", str(one), 1.0)
    shutil.copytree(one, other)
    (other / "assets" / "vocabulary.txt").write_text("another\n" * 5000)
    return [home / "1", home / "2"]


class Served:
    """A serving folder, with one version at first."""

    def __init__(self, folder: Path, forks: Forks, models: list[Path]) -> None:
        self.base, self._output, self._forks, self._models = folder / "serving", folder / "pushed", forks, models
        self.arguments = ("push", str(models[1]), str(self.base), str(self._output))
        forks.run("push", str(models[0]), str(self.base), str(self._output))
        self.first = forks.result

    def operations(self) -> list[Operation]:
        found = self._forks.operations(*self.arguments, True, within=str(self.base.parent))
        shutil.rmtree(self.base / self._forks.result)
        return found

    def push(self, operation: Operation, fault: str) -> int:
        """Pushes the second model, with a fault; checks that every version is whole."""
        code = self._forks.disturbed(*self.arguments, True, operation=operation, fault=fault)
        self.versions()
        return code

    def versions(self) -> list[str]:
        """Returns the versions, each of which must be a whole model."""
        found = [path.name for path in self.base.iterdir() if path.name.isdigit()]
        for name in found:
            model = self._models[0 if name == self.first else 1] / "Format-Serving"
            assert contents(self.base / name) == contents(model)
        return sorted(found, key=int)

    def push_again(self) -> None:
        """Pushes again; checks that there are exactly two versions, and removes the second."""
        self._forks.run(*self.arguments)
        first, second = self.versions()
        assert (first, second) == (self.first, self._forks.result)
        assert sorted(os.listdir(self.base)) == [first, second]
        shutil.rmtree(self.base / second)


@pytest.fixture
def served(tmp_path, forks, models) -> Served:
    return Served(tmp_path, forks, models)


def test_a_push_killed_before_any_operation_leaves_whole_versions(served, forks):
    operations = served.operations()
    assert {operation.call for operation in operations} >= {"openat", "write", "fsync", "rename", "mkdir", "unlink"}
    for operation in operations:
        assert served.push(operation, KILL) == -9, operation
        served.push_again()
    assert forks.call("load", str(served.base / served.first)) == 0
    assert json.loads(forks.result) == [1.0]


@pytest.mark.parametrize(("fault", "code"), [(STOP, 143), (INTERRUPT, 130)])
def test_an_interrupted_push_removes_its_draft(served, fault, code):
    operations = [each for each in served.operations() if str(served.base) in each.text]
    for call in ("write", "fsync", "rename"):
        operation = [each for each in operations if each.call == call][-1]
        assert served.push(operation, fault) == code, operation
        assert all(name.isdigit() for name in os.listdir(served.base))
        served.push_again()


def test_a_full_disk_is_reported_and_leaves_nothing(served, forks):
    operations = served.operations()
    last = next(each.number for each in operations if each.call == "rename")
    in_serving = [each for each in operations if str(served.base) in each.text and each.call in NEED_ROOM]
    for operation in [each for each in in_serving if each.call != "rename" or each.number == last]:
        synced_late = operation == [each for each in in_serving if each.call == "fsync"][-1]
        if " = -1 " in operation.text or synced_late:
            continue
        assert served.push(operation, FULL) == 6, operation
        assert "No space left on device" in forks.output
        assert "make room" in forks.output
        assert os.listdir(served.base) == [served.first], operation
    archive = next(each for each in operations if each.call == "sendfile")
    assert served.push(archive, FULL) == 6
    assert "make room" in forks.output
    served.push_again()


class Trained:
    def __init__(self, folder: Path, forks: Forks, saved: Path) -> None:
        self.root, self._forks, self._saved = folder / "Trainer", forks, saved
        self._executions = iter(range(1, 1000))
        # Also creates the component's folders.
        assert self.train() == [False]

    def arguments(self) -> tuple:
        return "train", str(self.root), str(self._saved), next(self._executions)

    def published(self, number: int) -> Path:
        """Returns the folder of a model, which must be whole or missing."""
        folder = self.root / "model" / str(number) / "Format-Serving"
        assert not folder.exists() or contents(folder) == contents(self._saved)
        return folder

    def train(self) -> list[bool]:
        """Executes it completely; returns whether it resumed from the training folder."""
        arguments = self.arguments()
        self._forks.run(*arguments)
        number = arguments[-1]
        assert sorted(os.listdir(self.root / "model" / str(number))) == ["Format-Serving", "Format-TFMA"]
        assert self.published(number).exists()
        run = self.root / "model_run" / str(number)
        assert sorted(os.listdir(run)) == ["declaration.json", "logs", "model.ckpt-9.index", "training.json"]
        # Only the note of its move.
        (note,) = (self.root / "training").iterdir()
        assert json.loads(note.read_text())["model_run"] == str(run)
        return json.loads(self._forks.result)


@pytest.fixture
def trained(tmp_path, forks, models) -> Trained:
    return Trained(tmp_path, forks, models[1] / "Format-Serving")


def test_a_trainer_killed_during_publication_resumes(forks, trained):
    operations = forks.operations(*trained.arguments(), True, within=str(trained.root))
    assert {operation.call for operation in operations} >= {"openat", "sendfile", "rename", "mkdir", "rmdir"}
    # A power failure leaves each file as it was, or whole.
    drafts = [(each, match[1]) for each in operations if (match := re.match(r'"[^"]*/(\.[^/"]+)", ', each.text))]
    assert drafts
    for renamed, name in drafts:
        before = operations[: operations.index(renamed)]
        assert any(each.call == "fsync" and name in each.text for each in before), name
        assert operations[operations.index(renamed) + 1].call == "fsync", name
    # A published training, here and after each kill below, is repeated: the user wants another.
    assert json.loads(forks.result) == [False]
    moved = False
    for operation in operations:
        arguments = trained.arguments()
        assert forks.disturbed(*arguments, True, operation=operation) == -9, operation
        trained.published(arguments[-1])
        moved = (trained.root / "model_run" / str(arguments[-1])).exists()
        # Also if the training was moved but ML Metadata does not have it.
        assert trained.train() == [True], operation
    assert moved
    assert trained.train() == [False]


@pytest.mark.parametrize("how", GARBLED)
def test_files_that_a_power_failure_left_garbled_count_as_missing(forks, trained, how):
    def garble() -> None:
        """Garbles whatever a training has left, except for its checkpoint and exports."""
        found = [path for path in trained.root.glob("training/**/*") if path.is_file() and "exported" not in path.parts]
        for path in (each for each in found if not each.match("model.ckpt*")):
            path.write_bytes(GARBLED[how](path.read_bytes()))

    garble()
    assert trained.train() == [False]
    first = forks.start(*trained.arguments(), True)
    forks.wait_for_stop(first)
    os.kill(first, signal.SIGKILL)
    forks.wait(first)
    garble()
    # From its checkpoint.
    assert trained.train() == [True]


def test_a_second_run_is_refused_until_the_first_one_ends_or_is_killed(forks, trained):
    first = forks.start(*trained.arguments(), True)
    try:
        forks.wait_for_stop(first)
        assert forks.call(*trained.arguments()) == 5
        assert f"another run uses {trained.root}/training/" in forks.output
        assert f": process {first} on {socket.gethostname()}, since 20" in forks.output
        assert f"to do:    wait for it, or end it (kill {first}) and run this again" in forks.output
    finally:
        os.kill(first, signal.SIGKILL)
    assert forks.wait(first) == -9
    assert trained.train() == [True]
