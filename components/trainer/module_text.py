"""Which functions a user's TFX module file defines, read as text: importing it is for a training task."""

from __future__ import annotations

import ast
import zipfile
from typing import Any

from tfx.dsl.io import fileio
from tfx.types.standard_component_specs import MODULE_FILE_KEY, MODULE_PATH_KEY

from tfx_estimator.pipeline.errors import UserCodeError
from tfx_estimator.pipeline.user_source.modules import Names, defined_names


def names_of_module(exec_properties: dict[str, Any]) -> Names:
    """Returns the names that a Trainer's module defines.

    Args:
        exec_properties: Of the execution: `module_file`, or `module_path`, a wheel that TFX packed the module into.

    Raises:
        UserCodeError: There is no such module, or it does not parse.
    """
    path = exec_properties.get(MODULE_FILE_KEY) or exec_properties.get(MODULE_PATH_KEY) or ""
    try:
        return defined_names(ast.parse(_read(path)))
    except Exception as error:  # file systems have errors of their own
        raise UserCodeError(
            f"the module {path!r} cannot be read: {error}",
            expected="a Python file that defines trainer_fn or run_fn",
            todo="correct the Trainer's module_file",
        ) from error


def _read(path: str) -> bytes:
    module, at, wheel = path.partition("@")
    if not at:
        with fileio.open(path, "rb") as file:
            return file.read()
    with fileio.open(wheel, "rb") as file, zipfile.ZipFile(file) as packed:
        return packed.read(f"{module.replace('.', '/')}.py")
