"""Whole runs that end while they publish: the served model always loads, and the next run completes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import Finished
from tests.faults.file_operations import Forks, Operation, need_strace
from tests.folders import contents

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def forks(forks: Forks) -> Forks:
    need_strace()
    return forks


class Pushes:
    """Runs of the digits with all components but the Pusher cached."""

    def __init__(self, folder: Path, digits_run: Finished, forks: Forks) -> None:
        self._model, self._folder, self.forks = Path(digits_run.versions[0]), folder, forks
        self._workdir, self._count = digits_run.workdir, 0

    def arguments(self) -> list[str]:
        """Returns the arguments of a run that pushes into a new folder."""
        self._count += 1
        self.base = self._folder / str(self._count)
        self.base.mkdir()
        place = ("--set", f"pusher.destination={self.base}", "--workdir", str(self._workdir.path))
        return ["run", "digits", "--no-report", *place]

    def check(self, *, pushed: bool) -> None:
        """Checks that each version is the whole model; after a push there is exactly one, and no other file."""
        versions = [path for path in self.base.iterdir() if path.name.isdigit()]
        for version in versions:
            assert contents(version) == contents(self._model)
        if pushed:
            assert len(versions) == 1
            assert os.listdir(self.base) == [versions[0].name]
            assert self._workdir.summary("digits")["pushed"] == str(versions[0])

    def operations(self) -> list[Operation]:
        """Returns a run's file operations from the Pusher's start until ML Metadata has the push."""
        found = self.forks.operations(self.arguments(), "Pusher", within=str(self._folder.parent))
        self.check(pushed=True)
        # The number of SQLite's writes varies.
        known = [each for each in found if "metadata.sqlite" in each.text and each.call in ("fdatasync", "unlink")]
        return [each for each in found if str(self._folder) in each.text or "/Pusher/" in each.text] + known

    def end(self, operation: Operation, fault: str = "signal=KILL", code: int = -9) -> None:
        """Ends a run at an operation; checks that the next one completes."""
        arguments = self.arguments()
        assert self.forks.disturbed(arguments, "Pusher", operation=operation, fault=fault) == code, operation
        self.check(pushed=False)
        self.forks.run(arguments)
        self.check(pushed=True)


@pytest.fixture
def pushes(tmp_path: Path, digits_run: Finished, forks: Forks) -> Pushes:
    return Pushes(tmp_path, digits_run, forks)


def test_the_run_after_an_interrupted_push_completes(pushes):
    last = {operation.call: operation for operation in pushes.operations()}
    # Half of the model; the whole without a version; a version and a draft; a version missing in ML Metadata.
    for call in ("write", "rename", "unlinkat", "fdatasync"):
        pushes.end(last[call])
    pushes.end(last["fsync"], "signal=TERM", 143)
    pushes.end(last["fsync"], "signal=INT", 130)
    pushes.end(last["rename"], "error=ENOSPC", 6)


@pytest.mark.long
def test_a_run_that_is_killed_before_any_operation_of_its_push(pushes):
    operations = pushes.operations()
    assert len(operations) > 40
    for operation in operations:
        pushes.end(operation)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_run_that_is_killed_while_the_trainer_publishes(tmp_path, digits_run, forks):
    base = tmp_path / "serving"
    base.mkdir()
    served: dict[str, dict[str, bytes]] = {}
    home = digits_run.workdir.path / "digits"

    def arguments(seed: int) -> list[str]:
        """Returns the arguments of a new training whose model is always blessed."""
        values = ("trainer.train_steps=40", f"trainer.seed={seed}", "evaluator.min_accuracy=0.05")
        values = (*values, "evaluator.max_accuracy_drop=null", f"pusher.destination={base}")
        declared = [word for value in values for word in ("--set", value)]
        return ["run", "digits", *declared, "--workdir", str(digits_run.workdir.path)]

    def check(pushed: bool) -> None:
        """Checks that served versions are unchanged, and a pushed one is the Trainer's whole model."""
        new = [path for path in base.iterdir() if path.name not in served]
        assert all(contents(base / name) == held for name, held in served.items())
        assert len(new) == pushed
        for path in new:
            models = (home / "artifacts" / "Trainer" / "model").glob("*/Format-Serving")
            newest = max(models, key=lambda model: int(model.parent.name))
            served[path.name] = contents(path)
            assert served[path.name] == contents(newest)

    operations = forks.operations(arguments(1000), "Trainer", within=f"{home}/artifacts/Trainer")
    check(pushed=True)
    # tests/faults/test_file_operations.py covers each operation, with a fake training.
    calls = sorted({operation.call for operation in operations})
    assert "rename" in calls
    found = [[each for each in operations if each.call == call] for call in calls]
    for index, operation in enumerate(dict.fromkeys(each for same in found for each in (same[0], same[-1]))):
        declared = arguments(1001 + index)
        assert forks.disturbed(declared, "Trainer", operation=operation) == -9, operation
        check(pushed=False)
        forks.run(declared)
        check(pushed=True)
