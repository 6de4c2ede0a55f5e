"""Records of blessed models, for services where a step cannot query ML Metadata for earlier artifacts.

Each blessing writes an immutable file of its own: concurrent runs do not conflict, and names sort by time. The records
are in the pipeline's folder, like trainings, wherever the service stores its artifacts. They hold artifacts as the
ExecutorInput of Kubeflow Pipelines 2 does. The found record is passed to a step as a string, because the launcher
rejects an output artifact in another run's folder (`KeyFromURI` in launcher_v2.go).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any, Optional

from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts, standard_component_specs

from tfx_estimator.components.baseline_resolver import comparable
from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.inventory import FILES, damage
from tfx_estimator.components.pusher.object_store import StoredTree
from tfx_estimator.components.trainer.settings import HOME_KEY
from tfx_estimator.pipeline.config.paths import is_address

# In the pipeline's folder.
FOLDER = "blessed"
# Parameter of an Evaluator's step: the found record; empty if there is none.
FOUND_BASELINE_KEY = "found_baseline"
_MODEL, _BASELINE = standard_component_specs.MODEL_KEY, standard_component_specs.BASELINE_MODEL_KEY


def give_baseline(executor_input: dict[str, Any]) -> None:
    """Makes the found model an input of an Evaluator's step.

    Args:
        executor_input: The ExecutorInput's JSON; that of other steps is left unchanged.
    """
    if found := executor_input.get("inputs", {}).get("parameterValues", {}).get(FOUND_BASELINE_KEY):
        artifacts = executor_input["inputs"]["artifacts"]
        artifacts[_BASELINE] = {"artifacts": [{**json.loads(found), "type": _only(artifacts[_MODEL])["type"]}]}


def keep_blessed(executor_input: dict[str, Any]) -> None:
    """Writes a record of the model that an Evaluator's step has blessed.

    Args:
        executor_input: As above; a step without the parameter of the pipeline's folder writes none.
    """
    home = executor_input.get("inputs", {}).get("parameterValues", {}).get(HOME_KEY)
    blessing = executor_input["outputs"]["artifacts"].get(standard_component_specs.BLESSING_KEY)
    if not home or not blessing or not fileio.exists(os.path.join(_only(blessing)["uri"], constants.BLESSED_FILE_NAME)):
        return
    model = _only(executor_input["inputs"]["artifacts"][_MODEL])
    files = json.dumps(StoredTree(model["uri"]).sizes(), sort_keys=True)
    record = {
        "name": model["name"],
        # Relative: a folder of runs may be moved.
        "uri": model["uri"].removeprefix(f"{home}/"),
        "metadata": {**model.get("metadata", {}), FILES: files},
    }
    folder = os.path.join(home, FOLDER)
    fileio.makedirs(folder)
    name = f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}.json"
    write_whole(os.path.join(folder, name), json.dumps(record, sort_keys=True))


def latest(home: str, candidate: types.Artifact) -> Optional[dict[str, Any]]:
    """Returns the latest record of an intact model, other than the candidate, that is comparable with it."""
    folder = os.path.join(home, FOLDER)
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    for name in sorted((name for name in names if name.endswith(".json")), reverse=True):
        if (record := read_json(os.path.join(folder, name))) is None:
            continue
        uri = record["uri"]
        record["uri"] = uri if is_address(uri) or os.path.isabs(uri) else os.path.join(home, uri)
        model = _artifact(record)
        if model.uri != candidate.uri and comparable(model, candidate) and not any(damage(model)):
            return record
    return None


def _artifact(record: dict[str, Any]) -> types.Artifact:
    model = standard_artifacts.Model()
    model.uri = record["uri"]
    for name, value in record["metadata"].items():
        if isinstance(value, str):
            model.set_string_custom_property(name, value)
    return model


def _only(listed: dict[str, Any]) -> dict[str, Any]:
    (artifact,) = listed["artifacts"]
    return artifact
