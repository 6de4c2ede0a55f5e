"""Which functions a user's TFX module file defines, read as text: importing it is for a training task."""

from __future__ import annotations

import ast
import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

from tfx.dsl.io import fileio
from tfx.types.standard_component_specs import MODULE_FILE_KEY, MODULE_PATH_KEY

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.user_source.modules import Names, defined_names


def names_of_module(exec_properties: dict[str, Any]) -> Names:
    """Returns the names that a Trainer's module defines.

    Args:
        exec_properties: Of the execution: `module_file`, or `module_path`, a wheel that TFX packed the module into.
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


@contextlib.contextmanager
def target_of(exec_properties: dict[str, Any]) -> Iterator[str]:
    """Finds the text of an execution's function: as `fingerprint_source` takes it, empty if it is elsewhere.

    Yields:
        `package.module:function`; or a module file, unpacked for as long as it is looked at.
    """
    dotted = exec_properties.get("run_fn") or exec_properties.get("trainer_fn")
    module, at, wheel = (exec_properties.get(MODULE_PATH_KEY) or "").partition("@")
    if dotted or not at:
        file = exec_properties.get(MODULE_FILE_KEY) or ""
        yield ":".join(str(dotted).rsplit(".", 1)) if dotted else "" if is_address(file) else file
        return
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        with fileio.open(wheel, "rb") as packed, zipfile.ZipFile(packed) as files:
            files.extractall(folder)
        yield os.path.join(folder, f"{module.replace('.', os.sep)}.py")


def _read(path: str) -> bytes:
    module, at, wheel = path.partition("@")
    if not at:
        with fileio.open(path, "rb") as file:
            return file.read()
    with fileio.open(wheel, "rb") as file, zipfile.ZipFile(file) as packed:
        return packed.read(f"{module.replace('.', '/')}.py")
