"""The folder that outlives one execution, so that a retry resumes from the last checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from tfx import types
from tfx.dsl.io import fileio

from tfx_estimator.components.trainer.settings import OPERATION_KEY

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
    # A retry with longer deadlines, or more restarts, is the same training.
    properties = {key: value for key, value in exec_properties.items() if key != OPERATION_KEY}
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
