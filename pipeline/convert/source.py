"""The training to convert: the last one of a run of this project, from ML Metadata and the run's folder."""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration.portable.mlmd.execution_lib import get_input_artifacts, get_output_artifacts
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.files import DECLARATION, TRAINING, read_json
from tfx_estimator.components.trainer.best.keeper import is_declared
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.settings import ESTIMATOR, OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.settling import with_counts
from tfx_estimator.components.trainer.training_folder import FOLDER
from tfx_estimator.model_fn.bridge import tf1
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.folders import METADATA, open_store, uris_here
from tfx_estimator.pipeline.report.artifacts import properties_of
from tfx_estimator.pipeline.report.source import Run, find_runs
from tfx_estimator.pipeline.user_source.frames import is_users_module

_TRAINER = "Trainer"


@dataclass(frozen=True)
class Source:
    """An Estimator's training.

    Args:
        settings: Settings of the training, with tuned values, steps of epochs and weights of balanced classes resolved.
        model: Folder of the SavedModel that was exported from that checkpoint; empty if there is none.
        examples: Files with evaluation examples that replace the Trainer's.
    """

    run: Run
    checkpoint: str
    step: int
    settings: Settings
    inputs: Artifacts
    model: str
    examples: Sequence[str] = ()

    @property
    def eval_files(self) -> list[str]:
        """The files, or their pattern, of the evaluation examples."""
        return [*self.examples] or [os.path.join(self.uri("examples"), "Split-eval", "*")]

    @property
    def last_step(self) -> int:
        """The last step of the resumed training: the declared one, or twice the steps of a finished training."""
        steps = self.settings.section.train_steps or self.step
        return steps if steps > self.step else 2 * self.step

    def uri(self, name: str) -> str:
        """Returns the URI of an input."""
        return str(artifact_utils.get_single_uri(self.inputs[name]))


def find(named: str, checkpoint: str = "") -> Source:
    """Finds the Estimator's training of a run, finished or not; with `checkpoint`, another one of the same model."""
    run = find_runs([named])[0]
    properties, inputs, outputs = last_training(run)
    settings = settings_of(properties)
    require_estimator(run.name, settings)
    folder = folder_of_training(run, outputs.get("model_run", ""))
    # The declaration with tuned values.
    settings = dataclasses.replace(settings, declaration=read_json(os.path.join(folder, DECLARATION)))
    settings, _ = with_counts(settings, properties, inputs[standard_component_specs.EXAMPLES_KEY])
    if checkpoint:
        return of_checkpoint(run, settings, inputs, checkpoint)
    prefix, step = last_checkpoint(folder)
    exported = os.path.join(outputs.get("model", ""), "Format-Serving")
    # A training resumed after it was published has another folder, and the best checkpoint may be an earlier one.
    is_of_last = folder == outputs.get("model_run") and not is_declared(settings.section)
    return Source(run, prefix, step, settings, inputs, exported if is_of_last and os.path.isdir(exported) else "")


def settings_of(properties: Mapping[str, Any]) -> Settings:
    """Returns the settings of a Trainer's execution."""
    # The operation's options, such as deadlines, which the driver blanked, do not affect the model.
    return Settings.of({SETTINGS_KEY: properties.get(SETTINGS_KEY), OPERATION_KEY: "{}"})


def show_tensorflow_1(settings: Settings) -> None:
    """Shows TensorFlow 1 to the modules of a training that declares so."""
    if settings.section.tf1:
        tf1.show(is_users_module)


def last_checkpoint(folder: str) -> tuple[str, int]:
    """Returns the last checkpoint of a training's folder, without `.index`, and its step."""
    if (step := checkpoints.last_step(folder)) is None:
        raise PipelineError(
            f"no checkpoint is in {folder}", expected="the last one of the training", todo="name another run"
        )
    return os.path.join(checkpoints.folder_of(folder), f"model.ckpt-{step}"), step


def require_estimator(name: str, settings: Settings) -> None:
    """Refuses a training of another path, or by the user's module file."""
    if settings.path != ESTIMATOR or settings.built_in is None:
        raise DeclarationError(
            f"the training of {name} is not that of a trainer.model on the path {ESTIMATOR}",
            expected=f"a declaration with trainer.model, and trainer.path: {ESTIMATOR}",
            todo="name the run, or the declaration, of one",
        )


def of_checkpoint(run: Run, settings: Settings, inputs: Artifacts, checkpoint: str) -> Source:
    """Returns a training of the same model outside of the run, with the run's examples."""
    prefix = WarmStart(checkpoint=checkpoint).source
    if not prefix:
        raise PipelineError(
            f"there is no checkpoint {checkpoint}", expected="one without its .index, or a folder", todo="name another"
        )
    step = int(tf.train.load_checkpoint(prefix).get_tensor(GLOBAL_STEP))
    return Source(run, prefix, step, settings, inputs, "")


def last_training(run: Run) -> tuple[dict[str, Any], Artifacts, dict[str, str]]:
    """Returns the Trainer's execution properties, input artifacts, and output URIs."""
    database = os.path.join(run.home, METADATA)
    if not os.path.exists(database):
        raise PipelineError(
            f"there is no {database}, which records what a run read and wrote",
            expected="the pipeline's whole folder",
            todo="copy it with all that is in it",
        )
    store = open_store(database)
    context = store.get_context_by_type_and_name("node", f"{run.name}.{_TRAINER}")
    executions = store.get_executions_by_context(context.id) if context else []
    known = {each["execution_id"] for each in run.summary.get("components", ()) if each.get("execution_id")}
    found = [each for each in executions if each.id in known] or executions
    if not found:
        raise PipelineError(
            f"{database} has no training of {run.name}",
            expected="a run that has started its Trainer",
            todo="run the pipeline; or name another run",
        )
    return describe(store, max(found, key=lambda each: each.id), uris_here(database, run.home))


def describe(
    store: Any, execution: metadata_store_pb2.Execution, moved: Mapping[str, str]
) -> tuple[dict[str, Any], Artifacts, dict[str, str]]:
    """Returns an execution's properties, input artifacts, and output URIs; `moved` has current URIs by old ones."""
    handle = types.SimpleNamespace(store=store)
    read, wrote = (get(handle, execution.id) for get in (get_input_artifacts, get_output_artifacts))
    for each in (each for found in (read, wrote) for artifacts in found.values() for each in artifacts):
        each.uri = moved.get(each.uri, each.uri)
    return properties_of(execution), read, {name: each.uri for name, (*_, each) in wrote.items()}


def folder_of_training(run: Run, model_run: str) -> str:
    """Returns the `model_run` artifact's folder; for an unfinished training, the latest training folder."""
    if model_run and os.path.isdir(model_run):
        return model_run
    root = os.path.join(run.home, "artifacts", _TRAINER, FOLDER)
    found = [os.path.join(root, name) for name in (os.listdir(root) if os.path.isdir(root) else ())]
    found = [each for each in found if read_json(os.path.join(each, TRAINING)) and _is_of_estimator(each)]
    if not found:
        raise PipelineError(
            f"the training of {run.name} has left neither a model_run nor a training folder",
            expected=f"one of them in {run.home}",
            todo="run the pipeline again",
        )
    return max(found, key=lambda each: os.path.getmtime(os.path.join(each, TRAINING)))


def _is_of_estimator(folder: str) -> bool:
    """True if the declaration in a training folder has the path `estimator`."""
    declared = read_json(os.path.join(folder, DECLARATION))
    return bool(declared) and Settings(declaration=declared).section.path == ESTIMATOR
