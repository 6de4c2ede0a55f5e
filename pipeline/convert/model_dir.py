"""A training outside of any pipeline: an Estimator's model_dir, with a declaration of the same network and data.

The declared pipeline runs up to the Trainer, to create the artifacts that a run would have left.
"""

from __future__ import annotations

from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import RunOptions
from tfx.types import artifact_utils, standard_artifacts, standard_component_specs

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.settling import with_counts
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.convert.source import Source, of_checkpoint, require_estimator
from tfx_estimator.pipeline.folders import PipelineFolders, open_store
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.runners.local import prepare

# The last component before the Trainer.
_LAST = "Transform"
_READ = {
    standard_component_specs.EXAMPLES_KEY: standard_artifacts.Examples,
    standard_component_specs.TRANSFORM_GRAPH_KEY: standard_artifacts.TransformGraph,
    standard_component_specs.SCHEMA_KEY: standard_artifacts.Schema,
}


def find(named: str, loaded: Loaded, folder: str) -> Source:
    """Creates the examples and the Transform graph of a declaration."""
    folders = PipelineFolders(folder, loaded.declaration.name)
    pipeline = prepare(loaded, folders)
    trainer = next(each for each in pipeline.components if isinstance(each, Trainer))
    settings = Settings.of(trainer.exec_properties)
    require_estimator(folders.name, settings)
    LocalDagRunner().run(pipeline, RunOptions(to_nodes=[_LAST]))
    inputs = _trainer_inputs(folders.metadata)
    settings, _ = with_counts(settings, trainer.exec_properties, inputs[standard_component_specs.EXAMPLES_KEY])
    return of_checkpoint(Run(folders.logs, "", values={"name": folders.name}), settings, inputs, named)


def _trainer_inputs(database: str) -> Artifacts:
    """Returns the artifacts that a Trainer would read, by input name."""
    store = open_store(database)
    found: Artifacts = {}
    for name, kind in _READ.items():
        (artifact,) = store.get_artifacts_by_type(kind.TYPE_NAME)
        found[name] = [artifact_utils.deserialize_artifact(store.get_artifact_type(kind.TYPE_NAME), artifact)]
    return found
