"""A training that no pipeline made: an Estimator's model_dir, and a declaration of the same network on the same data.

What a run would have left beside it is made: the declared pipeline runs until it would train.
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
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import open_store
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.runners.local import prepare

# What the Trainer reads is there after it.
_LAST = "Transform"
_READ = {
    standard_component_specs.EXAMPLES_KEY: standard_artifacts.Examples,
    standard_component_specs.TRANSFORM_GRAPH_KEY: standard_artifacts.TransformGraph,
    standard_component_specs.SCHEMA_KEY: standard_artifacts.Schema,
}


def find(named: str, loaded: Loaded, folder: str) -> Source:
    """Makes the examples and the Transform graph of a declaration.

    Args:
        named: A checkpoint without its `.index`, or the folder of it.
        folder: Where they are to lie; it is to be there as long as the source is used.

    Raises:
        DeclarationError: It declares no training of an Estimator.
        DataError: The declared data cannot be had, or are not what they should be.
    """
    folders = PipelineFolders(folder, loaded.declaration.name)
    pipeline = prepare(loaded, folders)
    trainer = next(each for each in pipeline.components if isinstance(each, Trainer))
    settings = Settings.of(trainer.exec_properties)
    require_estimator(folders.name, settings)
    LocalDagRunner().run(pipeline, RunOptions(to_nodes=[_LAST]))
    inputs = _made(folders.metadata)
    settings, _ = with_counts(settings, trainer.exec_properties, inputs[standard_component_specs.EXAMPLES_KEY])
    return of_checkpoint(Run(folders.logs, "", values={"name": folders.name}), settings, inputs, named)


def _made(database: str) -> Artifacts:
    """The artifacts that a Trainer would read, by the names of its inputs."""
    store = open_store(database)
    found: Artifacts = {}
    for name, kind in _READ.items():
        (artifact,) = store.get_artifacts_by_type(kind.TYPE_NAME)
        found[name] = [artifact_utils.deserialize_artifact(store.get_artifact_type(kind.TYPE_NAME), artifact)]
    return found
