"""Runs one TFX component, and calls module files as TFX's Trainer does."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Optional
from unittest import mock

from tfx.components.trainer.executor import GenericExecutor
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration.data_types_utils import build_value_dict
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable.mlmd.execution_lib import get_output_artifacts, remove_internal_keys
from tfx.types import Artifact
from tfx.types.value_artifact import ValueArtifact

from tfx_estimator.pipeline.report.artifacts import properties_of
from tfx_estimator.pipeline.testing import new_folder
from tfx_estimator.pipeline.testing.artifacts import artifact


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
    database = metadata.sqlite_metadata_connection_config(f"{root}/metadata.sqlite")
    nodes = [*importers.values(), made]
    with mock.patch("tempfile.tempdir", new_folder("temporary")):
        LocalDagRunner().run(Pipeline("test", root, metadata_connection_config=database, components=nodes))
    with metadata.Metadata(database) as handle:
        execution = max(handle.store.get_executions(), key=lambda each: each.id)
        return Ran(get_output_artifacts(handle, execution.id), remove_internal_keys(properties_of(execution)))


def _importer(name: str, given: Artifact) -> Importer:
    own, custom = map(build_value_dict, (given.mlmd_artifact.properties, given.mlmd_artifact.custom_properties))
    # TFX's Importer takes no others.
    properties = {
        "properties": own,
        "custom_properties": {k: v for k, v in custom.items() if isinstance(v, (int, str))},
    }
    return Importer(given.uri, type(given), **properties).with_id(f"of_{name}")


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
        schema, transform_graph, base_model: Artifacts of these types.
        custom_config: As for the Trainer.
        hyperparameters: As a Tuner passes them.

    Returns:
        The FnArgs; their folders are those of the test.
    """
    inputs = {"examples": examples, "schema": schema, "transform_graph": transform_graph, "base_model": base_model}
    steps = {"train_args": {"num_steps": train_steps}, "eval_args": {"num_steps": eval_steps}}
    properties = {name: json.dumps(each) for name, each in {**steps, "custom_config": custom_config or {}}.items()}
    made = GenericExecutor()._GetFnArgs(
        {name: [each] for name, each in inputs.items() if each is not None},
        {"model": [artifact("Model")], "model_run": [artifact("ModelRun")]},
        properties,
    )
    made.working_dir, made.hyperparameters = new_folder("working"), hyperparameters
    return made
