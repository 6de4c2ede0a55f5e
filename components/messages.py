"""Parameters of TFX's that are protocol buffers: a message, a dict of its fields, or JSON.

TFX takes a dict with a field that it does not know, and leaves that out; of other text it tells a line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from tfx.dsl.placeholder.placeholder import Placeholder
from tfx.orchestration.data_types import RuntimeParameter

from tfx_estimator.components.in_python import Argument
from tfx_estimator.pipeline.base.errors import DeclarationError

Kind = TypeVar("Kind", bound=Message)


def read_message(given: Any, kind: type[Kind], argument: Argument) -> Optional[Kind]:
    """Reads what a component was given as TFX does, but for fields that there are none of.

    Args:
        given: By the user; None is nothing.

    Returns:
        The message; None where nothing is given, or a value is known at run time only.

    Raises:
        DeclarationError: It is no such message.
    """
    if given is None or _is_late(given):
        return None
    if isinstance(given, kind):
        return given
    values = _of_json(given) if isinstance(given, str) else given
    if not isinstance(values, Mapping):
        raise argument.not_plain(given)
    try:
        return json_format.ParseDict(dict(values), kind())
    except json_format.ParseError as error:
        what = f"{argument.call}: {' '.join(str(error).split())}"
        raise DeclarationError(what, expected=argument.form, todo=argument.todo) from None


def _of_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_late(given: Any) -> bool:
    """Tells whether a value in it is known at run time only."""
    if isinstance(given, Mapping):
        return any(map(_is_late, given.values()))
    if isinstance(given, (list, tuple)):
        return any(map(_is_late, given))
    return isinstance(given, (RuntimeParameter, Placeholder))
