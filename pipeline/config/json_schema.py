"""The JSON Schema (draft 7) of a section, for editors, with each inner section among its definitions."""

from __future__ import annotations

import inspect
import json
import typing
from typing import Any

from tfx_estimator.pipeline.config import kinds
from tfx_estimator.pipeline.config.kinds import Limits
from tfx_estimator.pipeline.config.section import Key, Section

_TYPES = {bool: "boolean", str: "string", int: "integer", float: "number"}
# In the order of Limits.
_WORDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "pattern", "minLength")


def json_schema(section: type[Section]) -> dict[str, Any]:
    """Returns the schema of a section."""
    definitions: dict[str, Any] = {}
    _define(section, definitions)
    whole = definitions.pop(section.__name__)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole, "definitions": definitions}


def _define(section: type[Section], definitions: dict[str, Any]) -> None:
    head = {"title": section.__name__, "description": inspect.getdoc(section) or ""}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    definitions[section.__name__] = {**head, **schema}
    for name, key in section.__fields__.items():
        schema["properties"][name] = _of_key(name, key, definitions)
    if required := [name for name, key in section.__fields__.items() if key.required]:
        schema["required"] = required
    schema.update(additionalProperties=False, **section.SCHEMA)
    if section.SHORT_FORM:
        schema = {"anyOf": [section.SHORT_FORM, schema]}
    definitions[section.__name__] = {**head, **schema}


def _of_key(name: str, key: Key, definitions: dict[str, Any]) -> dict[str, Any]:
    typed = {**_of_kind(key.kind, definitions), **key.schema}
    forms = [each for each in (typed, key.short_form, {"type": "null"} if key.allow_none else None) if each]
    head: dict[str, Any] = {"title": name.replace("_", " ").capitalize()}
    if key.description:
        head["description"] = key.description
    if not key.required:
        default = key.default.dict() if isinstance(key.default, Section) else key.default
        head["default"] = json.loads(json.dumps(default))
    # Draft 7 ignores other keywords next to a `$ref`.
    return {**head, **typed} if len(forms) == 1 and "$ref" not in typed else {**head, "anyOf": forms}


def _of_kind(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        inside = _of_kind(arguments[0], definitions)
        return {**inside, **_of_limits(arguments[1])}
    if origin is typing.Union:
        return {"anyOf": [_of_kind(each, definitions) for each in arguments]}
    if origin is typing.Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is tuple:
        schema = {"type": "array", "items": _of_kind(arguments[0], definitions)}
        count = len(arguments)
        return schema if arguments[-1] is Ellipsis else {**schema, "minItems": count, "maxItems": count}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_kind(arguments[1], definitions)}
    if kinds.is_section(kind):
        if kind.__name__ not in definitions:
            _define(kind, definitions)
        return {"$ref": f"#/definitions/{kind.__name__}"}
    return {"type": _TYPES[kind]} if kind in _TYPES else {}


def _of_limits(limits: Limits) -> dict[str, Any]:
    return {word: limit for word, limit in zip(_WORDS, limits) if limit is not None}
