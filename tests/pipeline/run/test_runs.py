"""`runs` and `runs rm`: which runs are listed, removed or kept, and removals that are killed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2

from tests.pipeline import making
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.config.task import COMPARABLE
from tfx_estimator.pipeline.folders import PipelineFolders, only_run, open_store
from tfx_estimator.pipeline.run import removal
from tfx_estimator.pipeline.run.runs import list_runs

DELETED, LIVE = metadata_store_pb2.Artifact.DELETED, metadata_store_pb2.Artifact.LIVE


class Work:
    """A work folder with the runs of one small pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folders = PipelineFolders(str(folder / "runs"), "mine")
        self.word = folder / "word"
        self.word.write_text("said")
        self._count = 0

    def run(self, **summary: Any) -> str:
        """Runs the pipeline and writes the files that a run leaves; returns its log folder."""
        listener = making.run(self.folders, self.word)
        self._count += 1
        logs = Path(self.folders.logs) / f"2026112{self._count}-120000"
        (logs / "dry_run").mkdir(parents=True)
        (logs / "dry_run" / "log.txt").write_text("tried")
        (logs / "pipeline.log").write_text("logged")
        (logs / "declaration.yaml").write_text("name: mine\n")
        components = [vars(each) for each in listener.runs.values()]
        summary = {"started": f"2026-11-2{self._count}T12:00:00+00:00", "components": components, **summary}
        (logs / "summary.json").write_text(json.dumps(summary))
        return str(logs)

    def push(self, to: str) -> str:
        """Like `run`, with a Pusher in the summary; returns the log folder."""
        logs = self.run(pushed=to)
        summary = json.loads(Path(logs, "summary.json").read_text())
        summary["components"].append(
            {**summary["components"][0], "node": "Pusher", "state": "ran", "execution_id": None}
        )
        Path(logs, "summary.json").write_text(json.dumps(summary))
        return logs

    def states(self) -> list[str]:
        return [each.state for each in making.run(self.folders, self.word).runs.values()]

    def artifacts(self) -> dict[Path, int]:
        """Returns the state in ML Metadata of each artifact, by URI."""
        return {Path(each.uri): each.state for each in making.artifacts(self.folders.metadata)}

    def listed(self) -> list[str]:
        return [each.run for each in list_runs(self.folders.workdir)]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_artifacts_that_another_run_uses_stay_and_removed_ones_are_recreated(work, cli) -> None:
    first, second = work.run(), work.run()
    cli("runs", "rm", first)
    assert work.listed() == [second]
    assert list(work.artifacts().values()) == [LIVE, LIVE]
    assert all((each / "word").read_text() == "said" for each in work.artifacts())
    assert not os.path.exists(first)

    cli("runs", "rm", second)
    assert work.listed() == []
    gone = work.artifacts()
    assert list(gone.values()) == [DELETED, DELETED]
    assert not any(map(Path.exists, gone))
    assert os.listdir(work.folders.logs) == []

    assert work.states() == ["ran", "ran"]
    made = [each for each, state in work.artifacts().items() if state == LIVE]
    assert [(each / "word").read_text() for each in made] == ["said", "said"]
    assert work.states() == ["cached", "cached"]


def test_a_removed_run_is_not_cached_even_if_its_files_remain(work, cli, monkeypatch) -> None:
    logs = work.run()
    monkeypatch.setattr(removal, "_is_inside", lambda *_: False)
    cli("runs", "rm", logs)
    assert all((each / "word").exists() for each in work.artifacts())
    assert work.states() == ["ran", "ran"]


class Killed(BaseException):
    """Raised in place of SIGKILL."""


STEPS = (
    *((MetadataStore, name) for name in ("put_executions", "put_artifacts")),
    *((os, name) for name in ("remove", "unlink", "rmdir")),
)


class Counter:
    """Raises Killed after a number of steps."""

    def __init__(self, left: int) -> None:
        self._left = left

    def counted(self, step: Callable) -> Callable:
        def do(*args: Any, **options: Any) -> Any:
            if not self._left:
                raise Killed
            self._left -= 1
            return step(*args, **options)

        return do


def test_a_removal_that_is_killed_at_any_point_can_be_repeated(work, tmp_path, monkeypatch) -> None:
    first = work.run()
    work.word = tmp_path / "other"
    work.word.write_text("other")
    second = work.run()
    saved, points = tmp_path / "saved", 0
    shutil.copytree(work.folders.home, saved)
    while True:
        shutil.rmtree(work.folders.home)
        shutil.copytree(saved, work.folders.home)
        counter = Counter(points)
        with monkeypatch.context() as patch:
            for owner, name in STEPS:
                patch.setattr(owner, name, counter.counted(getattr(owner, name)))
            try:
                removal.remove([second])
                break
            except Killed:
                points += 1
        assert work.listed()[0] == first
        if second in work.listed():
            removal.remove([second])
        assert work.listed() == [first]
        states = work.artifacts()
        assert list(states.values()) == [LIVE, LIVE, DELETED, DELETED]
        assert [each.exists() for each in states] == [True, True, False, False]
    assert points > 8
    assert work.states() == ["ran", "ran"]


def test_a_run_is_kept_as_long_as_its_model_is_pushed(work, cli) -> None:
    pushed = Path(work.folders.serving) / "7"
    pushed.mkdir(parents=True)
    logs = work.push(str(pushed))
    before = work.artifacts()
    assert f"its model is pushed: {pushed}" in cli("runs", "rm", logs, code=2).err
    assert (work.artifacts(), work.listed()) == (before, [logs])
    pushed.rmdir()
    cli("runs", "rm", logs)
    assert work.listed() == []


def test_a_model_that_was_pushed_to_an_address_counts_as_pushed(work, cli) -> None:
    logs = work.push(pushed := "gs://bucket/serving/7")
    before = work.artifacts()
    assert [(each.pushed, each.bytes > 0) for each in list_runs(work.folders.workdir)] == [(True, True)]
    assert f"its model is pushed: {pushed}" in cli("runs", "rm", logs, code=2).err
    assert (work.artifacts(), work.listed()) == (before, [logs])
    assert all((each / "word").read_text() == "said" for each in before)


def test_all_runs_are_removed_that_nothing_needs(work, tmp_path, monkeypatch, cli) -> None:
    first, pushed, last = work.run(), work.push("gs://bucket/serving/7"), work.run()
    Path(last, "summary.json").write_text("{")
    outside = tmp_path / "outside"
    shutil.copytree(last, outside)
    (Path(work.folders.logs) / "linked").symlink_to(outside)
    monkeypatch.chdir(tmp_path)
    cli("runs", "rm", pushed, "--unneeded", code=2)
    cli("runs", "--unneeded", code=2)
    assert len(work.listed()) == 4
    *removed, total = cli("runs", "rm", "--unneeded").out.splitlines()
    assert removed == [first, last]
    assert total.startswith(f"removed 2 of {work.folders.home}: ")
    assert sorted(work.listed()) == [pushed, os.path.join(work.folders.logs, "linked")]
    assert (outside / "declaration.yaml").exists()
    assert all((each / "word").read_text() == "said" for each in work.artifacts())
    cli("runs", "rm", "--unneeded", work.folders.workdir)
    assert pushed in work.listed()


def test_the_latest_blessed_model_of_each_kind_is_kept(work, cli, tmp_path) -> None:
    runs = []
    for place, kind in enumerate(("digits", "digits", "mnist")):
        work.word = tmp_path / f"word{place}"
        work.word.write_text(kind)
        runs.append(work.run())
    store = open_store(work.folders.metadata)
    kind = metadata_store_pb2.ArtifactType(name="ModelBlessing")
    blessing = store.put_artifact_type(kind)
    models = [each for each in making.artifacts(work.folders.metadata) if "/Making/" in each.uri]
    for model, comparable in zip(models, ("digits", "digits", "mnist")):
        model.custom_properties[COMPARABLE].string_value = comparable
        made = metadata_store_pb2.Artifact(type_id=blessing, state=LIVE, uri="")
        made.custom_properties["blessed"].int_value = 1
        made.custom_properties["current_model_id"].int_value = model.id
        store.put_artifacts([model, made])
    for kept in runs[1:]:
        with pytest.raises(DeclarationError, match="latest blessed"):
            removal.remove([kept])
    cli("runs", "rm", "--unneeded", work.folders.workdir)
    assert work.listed() == runs[1:]


def test_no_link_leads_out_of_the_work_folder(work, tmp_path, cli) -> None:
    logs, outside = work.run(), tmp_path / "outside"
    shutil.copytree(work.folders.home, outside / "mine")
    files = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    (Path(work.folders.workdir) / "linked").symlink_to(outside / "mine")
    (Path(work.folders.logs) / "linked").symlink_to(outside / "mine" / "logs" / os.path.basename(logs))
    copied = Path(work.folders.root) / "Copying"
    shutil.rmtree(copied)
    copied.symlink_to(outside / "mine" / "artifacts" / "Copying")
    making_files = Path(work.folders.root) / "Making" / "model" / "1"
    (making_files / "linked").symlink_to(outside)
    (Path(logs) / "linked").symlink_to(outside)
    for named in ("linked/logs/20261121-120000", "mine/logs/linked"):
        refused = cli("runs", "rm", os.path.join(work.folders.workdir, named), code=2).err
        assert "leads out of the work folder by a link" in refused
    assert work.listed() == [os.path.join(work.folders.logs, "linked"), logs]
    cli("runs", "rm", logs)
    assert not making_files.exists()
    assert not os.path.exists(logs)
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("named", ["runs/mine", "runs/mine/logs", "runs/none/logs/20261121-120000", "word"])
def test_a_folder_that_is_not_a_run_is_not_removed(work, tmp_path, monkeypatch, cli, named) -> None:
    logs = work.run()
    monkeypatch.chdir(tmp_path)
    assert f"{named} is not the folder of a run" in cli("runs", "rm", logs, named, code=2).err
    assert work.listed() == [logs]


def test_nothing_is_removed_while_a_run_uses_the_folder(work) -> None:
    logs = work.run()
    with only_run(work.folders), pytest.raises(PipelineError, match="another run is using"):
        removal.remove([logs])
    assert work.listed() == [logs]


def test_runs_are_listed_with_their_results_and_sizes(work, cli) -> None:
    summary = {"versions": {"stack": "tfx1.21: TFX"}, "state": "succeeded", "accuracy": 0.98765, "blessed": True}
    first, second = work.run(**summary), work.run(state="failed")
    Path(second, "summary.json").write_text("{")
    (Path(work.folders.root) / "Making" / "model" / "1" / "large").write_bytes(os.urandom(3 << 20))
    one, other = json.loads(cli("runs", work.folders.workdir, "--json").out)
    assert one.pop("bytes") in range(3 << 20, (3 << 20) + 100_000)
    assert other.pop("bytes") < 100_000
    assert one == {
        "run": first,
        "name": "mine",
        "started": "2026-11-21T12:00:00+00:00",
        "stack": "tfx1.21",
        "state": "succeeded",
        "accuracy": 0.98765,
        "blessed": True,
        "pushed": False,
    }
    assert (other["run"], other["name"], other["state"]) == (second, "mine", None)
    titles, row, last = cli("runs", work.folders.workdir).out.splitlines()
    assert titles.split() == ["run", "started", "stack", "state", "accuracy", "blessed", "pushed", "size"]
    assert row.split("  ")[0] == first
    assert row.split()[-6:] == ["succeeded", "0.9877", "yes", "no", *row.split()[-2:]]
    assert row.split()[-1] == "MB"
    assert last.startswith(second)


def test_a_folder_that_is_not_there_is_an_error(tmp_path, cli) -> None:
    assert f"there is no folder {tmp_path / 'none'}" in cli("runs", str(tmp_path / "none"), code=2).err
