"""The file of `--map`, which says what names do not: where weights belong."""

from __future__ import annotations

import os
import re
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.yaml_text import read_yaml


def read_map(file: str) -> dict[str, Optional[str]]:
    """Reads the file of `--map`."""
    try:
        with open(os.path.expanduser(file), encoding="utf-8") as opened:
            document = read_yaml(opened.read(), one_line(file))
    except (OSError, UnicodeDecodeError) as error:
        raise _no_map(f"--map: {one_line(file)} cannot be read: {one_line(str(error))}") from error
    for problem in document.problems:
        raise _no_map(f"--map: {problem.where}: {problem.what}")
    found = document.value
    if not isinstance(found, dict) or not all(isinstance(each, (str, type(None))) for each in found.values()):
        raise _no_map(f"--map: {one_line(file)} is not a mapping of strings")
    for pattern in found:
        try:
            re.compile(pattern)
        except re.error as error:
            raise _no_map(f"--map: {one_line(pattern)} is not a regular expression: {error}") from error
    return found


def _no_map(what: str) -> DeclarationError:
    return DeclarationError(
        what,
        expected="YAML, each line for one or more tensors: a regular expression of the name, and the place in the "
        "Keras model, or null to leave it out",
        todo=r"write it as `'block(\d)/weights': 'conv\1/kernel'`",
    )
