"""What is converted: the last training of a run of this project, as ML Metadata and its folder tell of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2

from tfx_estimator.components.files import TRAINING, read_json
from tfx_estimator.components.trainer.best.keeper import is_declared
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.settings import ESTIMATOR, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.training_folder import FOLDER
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.folders import uris_here
from tfx_estimator.pipeline.report.source import Run, find_runs

_EVENT = metadata_store_pb2.Event
_TRAINER = "Trainer"
_DATABASE = "metadata.sqlite"


@dataclass(frozen=True)
class Source:
    """An Estimator's training.

    Args:
        run: That it is of.
        folder: Of its checkpoints.
        checkpoint: Its last one, as TensorFlow reads it.
        step: Of that checkpoint.
        settings: That decide the model.
        inputs: URIs of what the Trainer read, by the name of its input.
        model: The folder of the SavedModel that it exported; empty if it had not come to that.
    """

    run: Run
    folder: str
    checkpoint: str
    step: int
    settings: Settings
    inputs: dict[str, str]
    model: str

    def examples(self, split: str) -> str:
        """Returns the pattern of the files of a split."""
        return os.path.join(self.inputs["examples"], f"Split-{split}", "*")


def find(named: str) -> Source:
    """Finds the Estimator's training of a run, ended or not.

    Args:
        named: A pipeline's folder, whose last run is taken, or a run's log folder.

    Raises:
        DeclarationError: There is no run, or its training was no Estimator's of a declared network.
        PipelineError: ML Metadata knows of no training, or nothing is left of it.
    """
    run = find_runs([named])[0]
    execution, inputs, outputs = _last_training(run)
    properties = {**_values(execution.properties), **_values(execution.custom_properties)}
    settings = Settings.from_dict(json.loads(properties.get(SETTINGS_KEY) or "{}"))
    if settings.path != ESTIMATOR:
        raise DeclarationError(
            f"the training of {run.name} took the path {settings.path or 'of its module file'}",
            expected=f"one that took trainer.path: {ESTIMATOR}, with a declared trainer.model",
            todo="name the run of one",
        )
    folder = _folder(run, outputs.get("model_run", ""), settings)
    step = checkpoints.last_step(folder)
    if step is None:
        raise PipelineError(
            f"no checkpoint is in {folder}", expected="the last one of the training", todo="name another run"
        )
    prefix = os.path.join(checkpoints.folder_of(folder), f"model.ckpt-{step}")
    exported = os.path.join(outputs.get("model", ""), "Format-Serving")
    # One that goes on after it was published has another folder, and the best checkpoint may be an earlier one.
    is_of_last = folder == outputs.get("model_run") and not is_declared(settings.section)
    model = exported if os.path.isdir(exported) and is_of_last else ""
    return Source(run, folder, prefix, step, settings, inputs, model)


def _last_training(run: Run) -> tuple[Any, dict[str, str], dict[str, str]]:
    """The execution of the Trainer, and the URIs of what it read and wrote, by name."""
    database = os.path.join(run.home, _DATABASE)
    store = _open(database)
    context = store.get_context_by_type_and_name("node", f"{run.name}.{_TRAINER}")
    executions = store.get_executions_by_context(context.id) if context else []
    known = {each["execution_id"] for each in run.summary.get("components", ()) if each.get("execution_id")}
    found = [each for each in executions if each.id in known] or executions
    if not found:
        raise PipelineError(
            f"{database} knows of no training of {run.name}",
            expected="a run that has come to its Trainer",
            todo="run the pipeline; or name another run",
        )
    last = max(found, key=lambda each: each.id)
    events = store.get_events_by_execution_ids([last.id])
    artifacts = {each.id: each.uri for each in store.get_artifacts_by_id([event.artifact_id for event in events])}
    moved = uris_here(database, run.home)
    read: dict[str, str] = {}
    wrote: dict[str, str] = {}
    for event in events:
        place = wrote if event.type == _EVENT.OUTPUT else read
        uri = artifacts[event.artifact_id]
        place[event.path.steps[0].key] = moved.get(uri, uri)
    return last, read, wrote


def _open(database: str) -> metadata_store.MetadataStore:
    if not os.path.exists(database):
        raise PipelineError(
            f"there is no {database}, which knows what a run read and wrote",
            expected="the pipeline's whole folder",
            todo="copy it with all that is in it",
        )
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE
    return metadata_store.MetadataStore(config)


def _values(properties: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("value")) for name, value in properties.items() if value.ByteSize()}


def _folder(run: Run, model_run: str, settings: Settings) -> str:
    """The `model_run` artifact; of a training that has not ended, the training folder that was written to last."""
    if model_run and os.path.isdir(model_run):
        return model_run
    root = os.path.join(run.home, "artifacts", _TRAINER, FOLDER)
    found = [os.path.join(root, name) for name in (os.listdir(root) if os.path.isdir(root) else ())]
    found = [each for each in found if read_json(os.path.join(each, TRAINING)) and _is_of(each, settings)]
    if not found:
        raise PipelineError(
            f"the training of {run.name} has left neither a model_run nor a training folder",
            expected=f"one of them in {run.home}",
            todo="run the pipeline again",
        )
    return max(found, key=lambda each: os.path.getmtime(os.path.join(each, TRAINING)))


def _is_of(folder: str, settings: Settings) -> bool:
    """Was a folder written by the same declaration."""
    declared = read_json(os.path.join(folder, "declaration.json"))
    if not declared:
        return False
    deciding, _ = Settings(declaration=declared).split()
    return bool(deciding["declaration"] == Settings(declaration=settings.declaration).split()[0]["declaration"])
