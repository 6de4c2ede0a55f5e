"""Compiles for a cluster with the Kubeflow training operator: a TFJob whose chief runs the pipeline."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any, Optional

from tfx_estimator.components.trainer.tfjob.manifest import CONFIG_FOLDER, job_name, make_manifest
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

# A key of a ConfigMap may hold no `+`, as a wheel's name does.
_DECLARATION, _MODULES = "declaration.yaml", "modules.whl"
# Of all that a ConfigMap holds, in base64; the API server refuses more than 1 MiB.
_MOST_BYTES = 900_000


def compile_tfjob(declaration: Declaration, deploy: DeploySection, modules: Optional[Packed]) -> list[dict[str, Any]]:
    """Compiles a declaration.

    Each pod runs it as a task of a cluster that is already there: the chief the pipeline, the others its training. The
    declaration and the user's modules travel in a ConfigMap.

    Args:
        declaration: What to run.
        deploy: Where.
        modules: The user's own.

    Returns:
        The ConfigMap and the TFJob.

    Raises:
        DeclarationError: The user's modules are too large.
    """
    data, binary, values = {}, {}, json.loads(declaration.to_json())
    values.pop("deploy")
    for section in (values["trainer"], values["transform"]):
        if (file := section["module_file"]) is not None:
            name = section["module_file"] = os.path.basename(file)
            with open(file, encoding="utf-8") as text:
                data[name] = text.read()
    data[_DECLARATION] = Declaration.parse_obj(values).to_yaml()
    command = [
        *("tfx-estimator", "run", f"{CONFIG_FOLDER}/{_DECLARATION}"),
        *("--workdir", deploy.pipeline_root or ""),
    ]
    if modules:
        binary[_MODULES] = base64.b64encode(modules.data).decode()
        command = [*entry.COMMAND, *entry.arguments(entry.HOME, CONFIG_FOLDER, modules, command)]
    size = sum(len(text.encode()) for text in (*data.values(), *binary.values()))
    if size > _MOST_BYTES:
        raise DeclarationError(
            f"your own modules and the declaration are {size:,} bytes, too many to travel in a ConfigMap",
            expected=f"at most {_MOST_BYTES:,}",
            todo="install the modules as a package, in the image and here",
        )
    # Another declaration is another ConfigMap: pods that start again must not see what is not theirs.
    digest = hashlib.sha256(json.dumps([data, binary], sort_keys=True).encode()).hexdigest()
    name = job_name(declaration.name)
    config_map: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-{digest[:10]}"},
        "data": data,
    }
    if deploy.tfjob.namespace:
        config_map["metadata"]["namespace"] = deploy.tfjob.namespace
    if binary:
        config_map["binaryData"] = binary
    paths = {**{key: key for key in data}, **({_MODULES: f"{entry.FOLDER}/{modules.name}"} if modules else {})}
    mounted = {
        "name": config_map["metadata"]["name"],
        "items": [{"key": key, "path": path} for key, path in sorted(paths.items())],
    }
    job = make_manifest(name, deploy, declaration.trainer.distribution, command, mounted)
    return [config_map, job]
