"""Puts values in the place of `{{$…}}`, as a service does with what a container is given.

Source: https://www.kubeflow.org/docs/components/pipelines/user-guides/components/; `{{$}}` is TFX's way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tfx_estimator.pipeline.base.errors import PipelineError

_WHOLE = "{{$}}"
_PLACEHOLDER = re.compile(r"\{\{\$\.([^{}]+)\}\}")
_PART = re.compile(r"\.?([A-Za-z_]+)|\['([^']*)'\]")


def fill(text: str, executor_input: Mapping[str, Any]) -> str:
    """Fills in an argument.

    Raises:
        PipelineError: A placeholder means nothing.
    """
    # Not twice: what is filled in may look like a placeholder itself.
    return "".join(
        json.dumps(executor_input, sort_keys=True)
        if piece == _WHOLE
        else _PLACEHOLDER.sub(lambda found: _text(_look_up(found[1], executor_input)), piece)
        for piece in re.split(r"(\{\{\$\}\})", text)
    )


def _look_up(path: str, executor_input: Mapping[str, Any]) -> Any:
    names = [word or key for word, key in _PART.findall(path)]
    value: Any = executor_input
    try:
        if names[:2] == ["inputs", "parameters"]:
            names[1] = "parameterValues"
        elif names[:2] == ["outputs", "output_file"]:
            names[1] = "outputFile"
        for place, name in enumerate(names):
            value = value[name]
            if place == 2 and names[1] == "artifacts":
                value = value["artifacts"][0]
    except (KeyError, IndexError, TypeError) as error:
        raise PipelineError(
            f"the placeholder {{{{$.{path}}}}} means nothing here",
            expected="an input or an output of the task",
            todo="compile the pipeline anew, or see whether its place is emulated here",
        ) from error
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
