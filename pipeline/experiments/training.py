"""Runs a declared pipeline up to its Trainer: to train as it does, or to know what the Trainer would be given."""

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
    """Trains, under the folders' name; nothing is evaluated, blessed or pushed. What was done before TFX has cached."""
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
    """What TFX would give to the Trainer."""

    artifacts: str  # its input artifacts, as TFX writes them in JSON
    exec_properties: dict[str, Any]

    def job(self, declaration: Declaration, folder: str) -> Job:
        """Makes the job of one training in a folder, as the Trainer's executor does; nothing of it is kept."""
        settings = dataclasses.replace(
            Settings.of(self.exec_properties),
            declaration=declaration.dict(),
            start_timeout=declaration.trainer.start_timeout,
            stall_timeout=declaration.trainer.stall_timeout,
        )
        key = standard_component_specs.TRAIN_ARGS_KEY
        train_args = {**json.loads(self.exec_properties[key]), "num_steps": declaration.trainer.train_steps}
        # The path's function is another, where --paths or --vary takes another path.
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
    """Runs all that comes before the Trainer, in the folders of `run`; what is there already comes from TFX's cache."""
    runner = _InputsRunner(folders, listener)
    # A bench measures speed, for which no hyperparameters have to be tuned.
    declaration = loaded.declaration.copy(update={"tune": None})
    runner.run(prepare(dataclasses.replace(loaded, declaration=declaration), folders))
    assert runner.inputs is not None  # else the run raised
    return runner.inputs


def _place(pipeline: pipeline_pb2.Pipeline) -> int:
    """The Trainer's among the components, which are in topological order."""
    return [node.pipeline_node.node_info.id for node in pipeline.nodes].index(TRAINER)


class _UpToTrainer(LocalRunner):
    """Ends with the Trainer."""

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Optional[pipeline_pb2.RunOptions] = None
    ) -> None:
        del pipeline.nodes[_place(pipeline) + 1 :]
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
        # The ID of the run has to be known before the nodes are split, so that the Trainer gets the inputs of this run.
        run_id = datetime.datetime.now().isoformat()
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        place = _place(pipeline)
        trainer = pipeline_pb2.PipelineNode()
        trainer.CopyFrom(pipeline.nodes[place].pipeline_node)
        del pipeline.nodes[place:]
        super().run_with_ir(pipeline, run_options)
        with metadata.Metadata(metadata.sqlite_metadata_connection_config(self._folders.metadata)) as handle:
            resolved = inputs_utils.resolve_input_artifacts(pipeline_node=trainer, metadata_handle=handle)
        parameters = inputs_utils.resolve_parameters_with_schema(node_parameters=trainer.parameters)
        self.inputs = TrainerInputs(
            artifact_utils.jsonify_artifact_dict(resolved[0]),
            data_types_utils.build_parsed_value_dict(parameters),
        )
