"""What one component takes from the cache, and what it begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.pipeline.folders import PipelineFolders

pytestmark = pytest.mark.unit


@pytest.fixture
def folders(tmp_path) -> PipelineFolders:
    """Of a pipeline that has run."""
    from tests.pipeline import making

    (tmp_path / "word").write_text("any")
    folders = PipelineFolders(str(tmp_path / "runs"), "digits")
    making.run(folders, tmp_path / "word")
    return folders


def states(folders: PipelineFolders) -> dict[str, str]:
    from tests.pipeline import making

    return {name: run.state for name, run in making.run(folders, Path(folders.workdir).parent / "word").runs.items()}


def test_what_is_whole_comes_from_the_cache_and_what_is_damaged_is_made_anew(folders):
    assert states(folders) == {"Making": "cached", "Copying": "cached"}
    (Path(folders.root) / "Copying" / "copied" / "2" / "word").write_text("an")
    assert states(folders) == {"Making": "cached", "Copying": "ran"}
    (Path(folders.root) / "Making" / "model" / "1" / "word").unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert states(folders) == {"Making": "cached", "Copying": "cached"}


def test_without_the_database_nothing_of_another_execution_stays(folders):
    other = Path(folders.root) / "Making" / "model" / "1" / "another"
    other.write_text("of the execution before")
    Path(folders.metadata).unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert [path.name for path in other.parent.iterdir()] == ["word"]


def test_a_component_that_runs_opens_no_port(folders, monkeypatch):
    import grpc

    def server(*args, **options):
        raise AssertionError("a server without a password")

    monkeypatch.setattr(grpc, "server", server)
    Path(folders.metadata).unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
