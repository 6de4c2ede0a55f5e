"""Which YAML values a field takes: no silent coercion, and what was expected in words."""

from __future__ import annotations

import math
import typing
from typing import Any, Literal

from pydantic.v1 import BaseModel
from pydantic.v1.fields import ModelField

# The largest int64, which a file or a protocol buffer can hold.
_MAX_INT = 2**63 - 1


def reject(value: Any, annotation: Any) -> str:
    """Says why a value is not of a field's kind; empty where it is. Bounds and choices are left to pydantic.

    pydantic itself would take `5.7`, `"5"` or `yes` for 5.
    """
    origin = typing.get_origin(annotation)
    if origin is typing.Union:
        return _reject_all(value, _alternatives(annotation))
    if origin is tuple:
        return _reject_items(value, annotation)
    if origin is dict and isinstance(value, dict) and typing.get_args(annotation)[1] is not Any:
        item = typing.get_args(annotation)[1]
        reasons = (f"{key}: {reason}" for key, each in value.items() if (reason := reject(each, item)))
        return _reject_free(dict.fromkeys(value)) or next(reasons, "")
    if origin is dict or annotation is Any:
        return _reject_free(value) if annotation is Any or isinstance(value, dict) else f"{name(value)} is no mapping"
    if origin is Literal:
        return "" if isinstance(value, str) else f"{name(value)} is no text"
    if issubclass(annotation, BaseModel):
        return "" if isinstance(value, (dict, annotation)) else f"{name(value)} is no section"
    if issubclass(annotation, bool):
        return "" if isinstance(value, bool) else f"{name(value)} is neither true nor false"
    if issubclass(annotation, str):
        return "" if isinstance(value, str) else f"{name(value)} is no text"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name(value)} is no number"
    if not _is_finite(value):
        return "the number is not finite, or too large"
    if issubclass(annotation, int) and not isinstance(value, int):
        return "it is no whole number"
    return ""


def describe(annotation: Any, allow_none: bool = False) -> str:
    """Says in words which values a field takes, for example `a whole number, at least 1`."""
    return _describe(annotation) + (", or null" if allow_none else "")


def describe_field(field: ModelField) -> str:
    """Says in words which values a pydantic field takes, and what it means."""
    meaning = field.field_info.description
    words = describe(field.outer_type_, field.allow_none)
    return f"{words} ({meaning})" if meaning else words


def is_class(annotation: Any, parent: type) -> bool:
    """Tells whether a field's type is a class of that kind; `tuple[str, ...]` only looks like a class."""
    # pydantic's classes are abstract ones, of which `issubclass` would ask each other subclass.
    return typing.get_origin(annotation) is None and isinstance(annotation, type) and parent in annotation.__mro__


def name(value: Any) -> str:
    """Names a YAML value's kind."""
    if value is None:
        return "null"
    kinds = {bool: "true/false", int: "a whole number", float: "a fraction", str: "text", dict: "a mapping"}
    return kinds.get(type(value), "a list")


def _describe(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Literal:
        return arguments[0] if len(arguments) == 1 else "one of " + ", ".join(arguments)
    if origin is typing.Union:
        return ", or ".join(map(_describe, _alternatives(annotation)))
    if origin is tuple:
        item = _describe(arguments[0])
        return f"a list, each {item}" if arguments[-1] is Ellipsis else f"a list of {len(arguments)}, each {item}"
    if origin is dict:
        return "a mapping" if arguments[1] is Any else f"a mapping, each value {_describe(arguments[1])}"
    if annotation is Any:
        return "any value"
    if issubclass(annotation, BaseModel):
        return "a section with some of the keys " + ", ".join(annotation.__fields__)
    if issubclass(annotation, bool):
        return "true or false"
    if issubclass(annotation, str):
        return "text"
    return ("a whole number" if issubclass(annotation, int) else "a number") + _bounds(annotation)


def _bounds(annotation: Any) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    limits = {key: getattr(annotation, key, None) for key in words}
    return "".join(f", {words[key]} {limit:,}" for key, limit in limits.items() if limit is not None)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The kinds of a union; that null is one is told by `allow_none`."""
    return tuple(each for each in typing.get_args(annotation) if each is not type(None))


def _reject_all(value: Any, annotations: tuple[Any, ...]) -> str:
    """Says why a value is of none of several kinds: by the one that it is meant to be, where that can be told."""
    # pydantic would take it for an empty mapping.
    others = [each for each in annotations if not (value == "" and typing.get_origin(each) is Literal)]
    reasons = [reject(value, annotation) for annotation in others]
    if not all(reasons):
        return ""
    if len(others) < len(annotations):
        return "it is empty"
    meant = [reason for reason in reasons if not reason.startswith(f"{name(value)} is no ")]
    return meant[0] if meant else " and ".join(dict.fromkeys(reasons))


def _reject_items(value: Any, annotation: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return f"{name(value)} is no list"
    arguments = typing.get_args(annotation)
    if arguments[-1] is not Ellipsis and len(value) != len(arguments):
        return f"the list has {len(value)} items"
    for index, item in enumerate(value):
        if reason := reject(item, arguments[0]):
            return f"item {index + 1}: {reason}"
    return ""


def _reject_free(value: Any) -> str:
    """Refuses what JSON could not give back as it was."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return "a key is no text"
        return next((f"{key}: {reason}" for key, item in value.items() if (reason := _reject_free(item))), "")
    if isinstance(value, list):
        reasons = (f"item {i + 1}: {reason}" for i, item in enumerate(value) if (reason := _reject_free(item)))
        return next(reasons, "")
    if value is None or type(value) in (bool, str):
        return ""
    if type(value) in (int, float):
        return "" if _is_finite(value) else "a number is not finite, or too large"
    return f"{type(value).__name__} is no YAML value"


def _is_finite(value: float) -> bool:
    return abs(value) <= _MAX_INT if isinstance(value, int) else math.isfinite(value)
