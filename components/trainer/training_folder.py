"""The folder that outlives one execution, so that a retry resumes from the last checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs

from tfx_estimator.components.trainer.settings import SETTINGS_KEY, keyed_distribution

_FOLDER = "training"


def locate(model_run_uri: str, inputs: dict[str, list[types.Artifact]], exec_properties: dict[str, Any]) -> str:
    """Finds the training folder of this declaration, data and source.

    Args:
        model_run_uri: Where the execution's `model_run` artifact lies; the folder lies beside all of those.
        inputs: The execution's input artifacts.
        exec_properties: The execution's properties; they hold the declaration and the fingerprint of the source.

    Returns:
        The folder's path. The same for a retry, another as soon as anything differs.
    """
    properties = {**exec_properties, standard_component_specs.CUSTOM_CONFIG_KEY: _without_deadlines(exec_properties)}
    artifacts = {key: sorted(artifact.uri for artifact in channel) for key, channel in inputs.items()}
    text = json.dumps([artifacts, properties], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return os.path.join(os.path.dirname(os.path.dirname(model_run_uri)), _FOLDER, key)


def publish(folder: str, model_run_uri: str) -> None:
    """Makes a finished training the `model_run` artifact: in one move, so that a kill leaves it here or there."""
    if fileio.exists(model_run_uri):
        fileio.rmtree(model_run_uri)
    fileio.makedirs(os.path.dirname(model_run_uri))
    fileio.rename(folder, model_run_uri)


def _without_deadlines(exec_properties: dict[str, Any]) -> dict[str, Any]:
    """A retry with longer deadlines, or more restarts, is the same training."""
    config = json.loads(exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY) or "null") or {}
    settings = config.get(SETTINGS_KEY, {})
    kept = {key: value for key, value in settings.items() if not key.endswith("_timeout")}
    if section := kept.get("distribution_section"):
        kept["distribution_section"] = keyed_distribution(section)
    return {**config, SETTINGS_KEY: kept}
