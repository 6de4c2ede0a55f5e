"""A small pipeline whose artifacts hold a word, which shows the folder of runs that they belong to."""

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
    """Writes a file's word as a model, whose properties name paths inside and outside the pipeline's folder."""
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
    """Copies the store's database while artifacts are being made, and fails."""
    Path(seen).write_bytes(Path(stored).read_bytes())
    raise ValueError(model.uri)


class NodeRuns(Listener):
    """The run of each component."""

    def __init__(self) -> None:
        self.runs: dict[str, NodeRun] = {}

    def node_ended(self, run: NodeRun) -> None:
        self.runs[run.node] = run


def run(folders: PipelineFolders, word: Path, imported: str = "") -> NodeRuns:
    """Runs the pipeline; it also imports the model at the URI `imported`, unless that is empty."""
    making = Making(word=str(word))
    components = [making, Copying(model=making.outputs["model"])]
    if imported:
        components.append(Importer(source_uri=imported, artifact_type=standard_artifacts.Model).with_id("Importing"))
    os.makedirs(folders.local, exist_ok=True)
    connection = metadata.sqlite_metadata_connection_config(folders.metadata)
    result = NodeRuns()
    LocalRunner(result).run(
        Pipeline(
            folders.name,
            folders.root,
            components=components,
            enable_cache=True,
            metadata_connection_config=connection,
        )
    )
    return result


def artifacts(database: str) -> list[metadata_store_pb2.Artifact]:
    """Returns all artifacts in ML Metadata, in the order of their creation."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    return sorted(metadata_store.MetadataStore(config).get_artifacts(), key=lambda each: each.id)


def copied(database: str, result: NodeRuns) -> Path:
    """Returns the path of Copying's output in a run, from ML Metadata."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    store = metadata_store.MetadataStore(config)
    events = store.get_events_by_execution_ids([result.runs["Copying"].execution_id])
    (artifact,) = store.get_artifacts_by_id([each.artifact_id for each in events if each.type == each.OUTPUT])
    return Path(artifact.uri)
