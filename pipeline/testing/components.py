"""Runs one TFX component, and calls module files as TFX's Trainer does."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Optional

from tfx.components.trainer.executor import GenericExecutor
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable.mlmd.execution_lib import get_output_artifacts
from tfx.types import Artifact
from tfx.types import standard_component_specs as specs
from tfx.types.value_artifact import ValueArtifact

from tfx_estimator.pipeline.testing.artifacts import artifact
from tfx_estimator.pipeline.testing.folders import new_folder, temporary_in

_NAME = "test"


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a component has written.

    Args:
        outputs: Its artifacts, by the key of the output.
        properties: Its execution properties.
    """

    outputs: dict[str, list[Artifact]]
    properties: dict[str, Any]

    def __getitem__(self, key: str) -> Artifact:
        """Returns the only artifact of an output; a value, such as an Integer, is read."""
        (found,) = self.outputs[key]
        if isinstance(found, ValueArtifact):
            found.read()
        return found


def run_component(component: Callable[..., Any], **arguments: Any) -> Ran:
    """Runs a component as a pipeline does: with its driver, its executor and ML Metadata, all in a folder of the test.

    Args:
        component: Its class, or a function component.
        arguments: The component's own; artifacts stand for the channels of its inputs.

    Returns:
        Its outputs and execution properties.

    Raises:
        Exception: What its driver or executor raised.
    """
    root = new_folder("component")
    importers = {name: _importer(name, each) for name, each in arguments.items() if isinstance(each, Artifact)}
    made = component(**{**arguments, **{name: each.outputs["result"] for name, each in importers.items()}})
    database = metadata.sqlite_metadata_connection_config(os.path.join(root, "metadata.sqlite"))
    artifacts, nodes = os.path.join(root, "artifacts"), [*importers.values(), made]
    with temporary_in(root):
        LocalDagRunner().run(Pipeline(_NAME, artifacts, metadata_connection_config=database, components=nodes))
    with metadata.Metadata(database) as handle:
        context = handle.store.get_context_by_type_and_name("node", f"{_NAME}.{made.id}")
        (execution,) = handle.store.get_executions_by_context(context.id)
        properties = _plain(execution.custom_properties)
        properties = {name: value for name, value in properties.items() if not name.startswith("__")}
        return Ran(get_output_artifacts(handle, execution.id), properties)


def _plain(properties: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("value")) for name, value in properties.items()}


def _importer(name: str, given: Artifact) -> Importer:
    own, custom = (_plain(each) for each in (given.mlmd_artifact.properties, given.mlmd_artifact.custom_properties))
    return Importer(given.uri, type(given), properties=own, custom_properties=custom).with_id(f"of_{name}")


def fn_args(
    examples: Any,
    schema: Any = None,
    transform_graph: Any = None,
    *,
    train_steps: int = 10,
    eval_steps: int = 5,
    custom_config: Optional[Mapping[str, Any]] = None,
    hyperparameters: Optional[Mapping[str, Any]] = None,
    base_model: Any = None,
) -> Any:
    """Returns TFX's FnArgs for a trainer_fn, a run_fn or a tuner_fn, as TFX's Trainer fills them in.

    Args:
        examples: An Examples artifact with the splits `train` and `eval`.
        schema: A Schema artifact.
        transform_graph: A TransformGraph artifact.
        train_steps: Number of training steps.
        eval_steps: Number of evaluation batches.
        custom_config: As for the Trainer.
        hyperparameters: As a Tuner passes them.
        base_model: A Model artifact.

    Returns:
        The FnArgs; their folders are those of the test.
    """
    inputs = {
        specs.EXAMPLES_KEY: examples,
        specs.SCHEMA_KEY: schema,
        specs.TRANSFORM_GRAPH_KEY: transform_graph,
        specs.BASE_MODEL_KEY: base_model,
    }
    properties = {
        specs.TRAIN_ARGS_KEY: json.dumps({"num_steps": train_steps}),
        specs.EVAL_ARGS_KEY: json.dumps({"num_steps": eval_steps}),
        specs.CUSTOM_CONFIG_KEY: json.dumps(dict(custom_config or {})),
    }
    outputs = {specs.MODEL_KEY: [artifact("Model")], specs.MODEL_RUN_KEY: [artifact("ModelRun")]}
    given = {name: [each] for name, each in inputs.items() if each is not None}
    made = GenericExecutor()._GetFnArgs(given, outputs, properties)
    made.working_dir = new_folder("working")
    made.hyperparameters = dict(hyperparameters) if hyperparameters is not None else None
    return made
