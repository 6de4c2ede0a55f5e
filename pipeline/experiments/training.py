"""Runs a declared pipeline up to its Trainer: to train, or to find the Trainer's inputs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
from typing import Any, Optional

from tfx.dsl.compiler import constants
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.portable import inputs_utils, runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_artifacts, standard_component_specs

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings, built_in_function
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.pipeline.config import Declaration, Loaded
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import Outputs, read_outputs
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.local import Listener, LocalRunner, prepare

TRAINER = "Trainer"


def train(loaded: Loaded, folders: PipelineFolders, view: View) -> Outputs:
    """Runs the pipeline up to the Trainer, with TFX's cache, under the folders' name; evaluates and pushes nothing."""
    declaration = loaded.declaration.copy(update={"name": folders.name})
    search_paths = list(sys.path)
    try:
        _UpToTrainer(view).run(prepare(dataclasses.replace(loaded, declaration=declaration), folders))
    finally:
        # Another candidate may have modules of the same names.
        sys.path[:] = search_paths
    return read_outputs(folders.metadata, {each.execution_id: each.node for each in view.runs if each.execution_id})


@dataclasses.dataclass(frozen=True)
class TrainerInputs:
    """Inputs that TFX would pass to the Trainer."""

    artifacts: str  # its input artifacts, in TFX's JSON
    exec_properties: dict[str, Any]

    def job(self, declaration: Declaration, folder: str) -> Job:
        """Makes the job of one training in a temporary folder, as the Trainer's executor does."""
        settings = dataclasses.replace(
            Settings.of(self.exec_properties),
            declaration=declaration.dict(),
            start_timeout=declaration.trainer.start_timeout,
            stall_timeout=declaration.trainer.stall_timeout,
        )
        key = standard_component_specs.TRAIN_ARGS_KEY
        train_args = {**json.loads(self.exec_properties[key]), "num_steps": declaration.trainer.train_steps}
        # --paths or --vary may change the path, and with it the function.
        properties = {**self.exec_properties, **built_in_function(declaration.trainer), key: json.dumps(train_args)}
        outputs = {
            standard_component_specs.MODEL_KEY: standard_artifacts.Model(),
            standard_component_specs.MODEL_RUN_KEY: standard_artifacts.ModelRun(),
        }
        for name, artifact in outputs.items():
            artifact.uri = os.path.join(folder, name)
        return Job(
            inputs=self.artifacts,
            outputs=artifact_utils.jsonify_artifact_dict({name: [each] for name, each in outputs.items()}),
            exec_properties=properties,
            training_dir=os.path.join(folder, "training"),
            settings=settings,
            path=paths.name_of(properties, settings),
        )


def prepare_inputs(loaded: Loaded, folders: PipelineFolders, listener: Optional[Listener] = None) -> TrainerInputs:
    """Runs the components before the Trainer, in the folders of `run`, with TFX's cache."""
    runner = _InputsRunner(folders, listener)
    # A bench measures speed, which needs no tuned hyperparameters.
    declaration = loaded.declaration.copy(update={"tune": None})
    runner.run(prepare(dataclasses.replace(loaded, declaration=declaration), folders))
    assert runner.inputs is not None  # else the run raised
    return runner.inputs


def _trainer_index(pipeline: pipeline_pb2.Pipeline) -> int:
    """Returns the Trainer's index among the components, which are in topological order."""
    return [node.pipeline_node.node_info.id for node in pipeline.nodes].index(TRAINER)


class _UpToTrainer(LocalRunner):
    """Ends with the Trainer."""

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Optional[pipeline_pb2.RunOptions] = None
    ) -> None:
        del pipeline.nodes[_trainer_index(pipeline) + 1 :]
        super().run_with_ir(pipeline, run_options)


class _InputsRunner(LocalRunner):
    """Ends before the Trainer, whose inputs it looks up as TFX's launcher does.

    Source: `tfx.orchestration.portable.launcher.Launcher._prepare_execution`.
    """

    def __init__(self, folders: PipelineFolders, listener: Optional[Listener]) -> None:
        super().__init__(listener)
        self._folders = folders
        self.inputs: Optional[TrainerInputs] = None

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Optional[pipeline_pb2.RunOptions] = None
    ) -> None:
        # Sets the run's ID before the Trainer is split off, so that it gets the inputs of this run.
        run_id = datetime.datetime.now().isoformat()
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        index = _trainer_index(pipeline)
        trainer = pipeline_pb2.PipelineNode()
        trainer.CopyFrom(pipeline.nodes[index].pipeline_node)
        del pipeline.nodes[index:]
        super().run_with_ir(pipeline, run_options)
        with metadata.Metadata(metadata.sqlite_metadata_connection_config(self._folders.metadata)) as handle:
            resolved = inputs_utils.resolve_input_artifacts(pipeline_node=trainer, metadata_handle=handle)
        parameters = inputs_utils.resolve_parameters_with_schema(node_parameters=trainer.parameters)
        self.inputs = TrainerInputs(
            artifact_utils.jsonify_artifact_dict(resolved[0]),
            data_types_utils.build_parsed_value_dict(parameters),
        )
