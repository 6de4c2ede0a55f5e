"""The cache, outputs and cache keys of one component."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.types import standard_artifacts

from tests.folders import flip
from tests.pipeline import making
from tfx_estimator.components import inventory
from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners.launcher import with_sorted_properties


@pytest.fixture
def folders(tmp_path) -> PipelineFolders:
    (tmp_path / "word").write_text("any")
    folders = PipelineFolders(str(tmp_path / "runs"), "digits")
    making.run(folders, tmp_path / "word")
    return folders


def run(folders: PipelineFolders) -> making.NodeRuns:
    return making.run(folders, Path(folders.workdir).parent / "word")


def states(folders: PipelineFolders) -> dict[str, str]:
    return {name: node.state for name, node in run(folders).runs.items()}


def test_complete_outputs_are_cached_and_damaged_ones_are_recreated(folders):
    assert states(folders) == {"Making": "cached", "Copying": "cached"}
    (Path(folders.root) / "Copying" / "copied" / "2" / "word").write_text("an")
    assert states(folders) == {"Making": "cached", "Copying": "ran"}
    (Path(folders.root) / "Making" / "model" / "1" / "word").unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert states(folders) == {"Making": "cached", "Copying": "cached"}


def test_changed_bytes_are_found_and_the_artifact_is_made_again(folders):
    flip(Path(folders.root) / "Copying" / "copied" / "2" / "word")
    assert states(folders) == {"Making": "cached", "Copying": "ran"}
    flip(Path(folders.root) / "Making" / "model" / "1" / "word")
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert [path.read_text() for path in Path(folders.root).glob("*/*/*/word")].count("any") == 3


def test_a_damaged_input_is_made_again_and_the_run_goes_on(folders, monkeypatch):
    # Too big to be compared before it is read.
    monkeypatch.setattr(inventory, "_SMALL", 0)
    made, copied = (Path(folders.root) / name for name in ("Making/model/1/word", "Copying/copied/2/word"))
    flip(made)
    assert states(folders) == {"Making": "cached", "Copying": "cached"}
    copied.unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert making.copied(folders.metadata, run(folders)).joinpath("word").read_text() == "any"
    assert states(folders) == {"Making": "cached", "Copying": "cached"}


def test_a_disk_that_damages_whatever_is_written_ends_the_run(folders, monkeypatch):
    monkeypatch.setattr(inventory, "_SMALL", 0)
    monkeypatch.setattr(inventory, "_checksum", lambda path: time.monotonic_ns())
    (Path(folders.root) / "Copying" / "copied" / "2" / "word").unlink()
    with pytest.raises(DamagedDataError, match=r"model/[0-9]+/word: its bytes have changed"):
        states(folders)


def test_without_the_database_files_of_earlier_executions_are_removed(folders):
    other = Path(folders.root) / "Making" / "model" / "1" / "another"
    other.write_text("of the execution before")
    Path(folders.metadata).unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}
    assert [path.name for path in other.parent.iterdir()] == ["word"]


def test_a_component_that_runs_opens_no_port(folders, monkeypatch):
    def server(*args, **options):
        raise AssertionError("a server without a password")

    monkeypatch.setattr(grpc, "server", server)
    Path(folders.metadata).unlink()
    assert states(folders) == {"Making": "ran", "Copying": "ran"}


# Protobuf 3's bytes; later versions write the second name first, and TFX's cache key would differ.
WRITTEN = b"\x08\x01\x10\x02\x1a\x01u*\x0b\n\x05model\x12\x02\x08\x03*\x0e\n\x08model_id\x12\x02\x08\x04:\x01n"


def test_the_bytes_of_an_artifact_are_those_of_protobuf_3():
    artifact = standard_artifacts.Model()
    artifact.set_mlmd_artifact(metadata_store_pb2.Artifact(id=1, type_id=2, uri="u", name="n"))
    artifact.set_int_custom_property("model_id", 4)
    artifact.set_int_custom_property("model", 3)

    def hashed(input_artifacts, **others):
        mlmd = {key: [each.mlmd_artifact for each in channel] for key, channel in input_artifacts.items()}
        return {key: [each.SerializeToString(deterministic=True) for each in channel] for key, channel in mlmd.items()}

    assert with_sorted_properties(hashed)(input_artifacts={"model": [artifact]}) == {"model": [WRITTEN]}
    assert with_sorted_properties(hashed)() == {}
