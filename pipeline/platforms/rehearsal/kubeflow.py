"""How Kubeflow Pipelines 2 hands artifacts over, as far as it differs from Vertex AI.

Source: driver/util.go, metadata/client.go and metadata/converter.go of
https://github.com/kubeflow/pipelines/tree/master/backend/src/v2.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tfx_estimator.pipeline.base.errors import PipelineError

# Of the pod, and gone with it.
OUTPUT_FILE = os.path.join("kfp_outputs", "output_metadata.json")
# Where the service publishes the containers' logs, as it does unless told otherwise.
_LOGS = "executor-logs"

Artifact = Mapping[str, Any]


def as_inputs(artifacts: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    """Returns the inputs of a step: ML Metadata's clients look no type up."""
    return {key: {**artifact, "type": {"instanceSchema": ""}} for key, artifact in artifacts.items()}


def as_outputs(artifacts: Mapping[str, Artifact], folder: str) -> dict[str, dict[str, Any]]:
    """Returns what a step is told of its outputs: ML Metadata has not named them yet."""
    told = {key: {"uri": artifact["uri"], "type": artifact["type"]} for key, artifact in artifacts.items()}
    return {**told, _LOGS: {"uri": os.path.join(folder, _LOGS), "type": {"schemaTitle": "system.Artifact"}}}


def as_kept(artifact: Artifact, task: str, key: str) -> dict[str, Any]:
    """Returns an artifact as ML Metadata keeps it.

    Raises:
        PipelineError: A value is of no type that is kept.
    """
    about = {"display_name": key, "store_session_info": "null"}
    metadata = {
        name: _kept(value, f"{name} of the output {key} of {task}") for name, value in artifact["metadata"].items()
    }
    return {**artifact, "metadata": {**about, **metadata}}


def name_after(names: list[str]) -> int:
    """Returns the ID of the next artifact, which is its name."""
    return 1 + max((int(name) for name in names if name.isdecimal()), default=0)


def _kept(value: Any, what: str) -> Any:
    if value is None:
        raise PipelineError(
            f"the property {what} is null, which Kubeflow Pipelines 2 cannot keep",
            expected="a number, a text, a list or a mapping",
            todo="leave it out",
        )
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, dict) else value
