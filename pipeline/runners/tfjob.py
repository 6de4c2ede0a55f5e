"""Compiles for a cluster with the Kubeflow training operator: a TFJob whose chief runs the pipeline."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Optional

from tfx_estimator.components.trainer.tfjob.manifest import (
    CONFIG_FOLDER,
    PENDING_TIMEOUT,
    PIPELINE,
    job_name,
    make_manifest,
)
from tfx_estimator.pipeline.config import config_map
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed


def compile_tfjob(declaration: Declaration, deploy: DeploySection, modules: Optional[Packed]) -> list[dict[str, Any]]:
    """Compiles a declaration.

    Each pod runs it as a task of a cluster that is already there: the chief the pipeline, the others its training. The
    declaration and the user's modules travel in a ConfigMap.

    Args:
        declaration: What to run; its modules are not too large, as was checked when it was loaded.
        deploy: Where.
    """
    data, binary = config_map.contents(declaration, modules)
    command = [
        *("tfx-estimator", "run", f"{CONFIG_FOLDER}/{config_map.DECLARATION}"),
        *("--workdir", deploy.pipeline_root or ""),
    ]
    if modules:
        command = [*entry.COMMAND, *entry.arguments(entry.HOME, CONFIG_FOLDER, modules, command)]
    # Another declaration is another ConfigMap: pods that start again must not see what is not theirs.
    digest = hashlib.sha256(json.dumps([data, binary], sort_keys=True).encode()).hexdigest()
    name = job_name(declaration.name)
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-{digest[:10]}", "labels": {PIPELINE: name}},
        "data": data,
    }
    if deploy.tfjob.namespace:
        made["metadata"]["namespace"] = deploy.tfjob.namespace
    if binary:
        made["binaryData"] = binary
    paths = {key: key for key in (*data, *binary)}
    if modules:
        paths[config_map.MODULES] = f"{entry.FOLDER}/{modules.name}"
    mounted = {
        "name": made["metadata"]["name"],
        "items": [{"key": key, "path": path} for key, path in sorted(paths.items())],
    }
    job = make_manifest(name, deploy, declaration.trainer.distribution, command, mounted)
    # By this label a new start finds what an earlier declaration of this name has left.
    job["metadata"].setdefault("labels", {})[PIPELINE] = name
    # Read by `submit --follow`.
    job["metadata"]["annotations"] = {PENDING_TIMEOUT: f"{deploy.tfjob.pending_timeout:.10g}"}
    return [made, job]
