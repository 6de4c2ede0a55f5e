"""A small pipeline whose artifacts hold a word, which is what tells those of one folder of runs from another's."""

import os
from pathlib import Path

from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts

from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners.listener import Listener, NodeRun
from tfx_estimator.pipeline.runners.local import LocalRunner


@component
def Making(model: OutputArtifact[standard_artifacts.Model], word: Parameter[str]):  # noqa: N802
    """Makes a model of the word in a file; its properties name places in the pipeline's folder, and outside of it."""
    (Path(model.uri) / "word").write_text(Path(word).read_text())
    home = os.path.dirname(model.uri.partition("/artifacts/")[0] + "/artifacts")
    model.set_string_custom_property("pushed_destination", f"{home}/serving/1")
    model.set_string_custom_property("current_model", model.uri)
    model.set_string_custom_property("elsewhere", f"{home}-else/serving/1")


@component
def Copying(model: InputArtifact[standard_artifacts.Model], copied: OutputArtifact[standard_artifacts.Model]):  # noqa: N802
    (Path(copied.uri) / "word").write_text((Path(model.uri) / "word").read_text())


@component
def Failing(model: OutputArtifact[standard_artifacts.Model], stored: Parameter[str], seen: Parameter[str]):  # noqa: N802
    """Keeps the database that lies in the store while artifacts are being made, and fails."""
    Path(seen).write_bytes(Path(stored).read_bytes())
    raise ValueError(model.uri)


class Heard(Listener):
    """How each component went, and its execution."""

    def __init__(self) -> None:
        self.runs: dict[str, NodeRun] = {}

    def node_ended(self, run: NodeRun) -> None:
        self.runs[run.node] = run


def run(folders: PipelineFolders, word: Path, imported: str = "") -> Heard:
    """Runs it.

    Args:
        folders: Where.
        imported: A model that is imported from there, if any is.
    """
    making = Making(word=str(word))
    components = [making, Copying(model=making.outputs["model"])]
    if imported:
        components.append(Importer(source_uri=imported, artifact_type=standard_artifacts.Model).with_id("Importing"))
    os.makedirs(folders.local, exist_ok=True)
    connection = metadata.sqlite_metadata_connection_config(folders.metadata)
    heard = Heard()
    LocalRunner(heard).run(
        Pipeline(
            folders.name,
            folders.root,
            components=components,
            enable_cache=True,
            metadata_connection_config=connection,
        )
    )
    return heard


def artifacts(database: str) -> list[metadata_store_pb2.Artifact]:
    """All artifacts that ML Metadata knows, in the order of their making."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    return sorted(metadata_store.MetadataStore(config).get_artifacts(), key=lambda each: each.id)


def copied(database: str, heard: Heard) -> Path:
    """What Copying came to in a run, as ML Metadata names it."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    store = metadata_store.MetadataStore(config)
    events = store.get_events_by_execution_ids([heard.runs["Copying"].execution_id])
    (artifact,) = store.get_artifacts_by_id([each.artifact_id for each in events if each.type == each.OUTPUT])
    return Path(artifact.uri)
