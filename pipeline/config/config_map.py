"""What travels to the pods of a compiled TFJob: the declaration, its module files and the user's own modules."""

from __future__ import annotations

import base64
import json
import os
from typing import Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.user_source.pack import Packed

# A key of a ConfigMap may hold no `+`, as a wheel's name does.
DECLARATION, MODULES = "declaration.yaml", "modules.whl"
# Limit for all that a ConfigMap holds, in base64; the API server refuses more than 1 MiB.
MOST_BYTES = 900_000


def contents(declaration: Declaration, modules: Optional[Packed]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns a ConfigMap's `data`, which is text, and its `binaryData`, in base64.

    Args:
        declaration: What to run; its module files are there.
    """
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    values = json.loads(declaration.to_json())
    values.pop("deploy")
    for section in (values["trainer"], values["transform"]):
        if (file := section["module_file"]) is not None:
            name = section["module_file"] = os.path.basename(file)
            with open(file, "rb") as source:
                code = source.read()
            try:
                data[name] = code.decode()
            except UnicodeDecodeError:
                # Python reads what its first lines name, as `coding: latin-1`.
                binary[name] = base64.b64encode(code).decode()
    data[DECLARATION] = Declaration.parse_obj(values).to_yaml()
    if modules:
        binary[MODULES] = base64.b64encode(modules.data).decode()
    return data, binary


def size_of(data: dict[str, str], binary: dict[str, str]) -> int:
    """Returns how many bytes of MOST_BYTES they are; takes what `contents` returned."""
    return sum(len(text.encode()) for text in (*data.values(), *binary.values()))
