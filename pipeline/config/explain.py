"""Turns pydantic's errors into problems that say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Optional, Union, get_args, get_origin

from pydantic.v1 import BaseModel
from pydantic.v1.fields import ModelField

from tfx_estimator.pipeline.config import kinds, known
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.travel_checks import shown_options
from tfx_estimator.pipeline.config.yaml_text import Path, inline

Where = Callable[[Path], str]
# If a section has fewer keys, the message lists all of them, and does not guess at a similar key of another section.
_MANY_KEYS = 6


def explain(error: Mapping[str, Any], values: Mapping[str, Any], where: Where) -> Problem:
    """Explains an item of `ValidationError.errors()`; `where` says where a path's value stands."""
    path = tuple(str(part) for part in error["loc"])
    dotted = ".".join(path)
    kind = error["type"]
    if kind == "value_error.extra":
        return _unknown_key(path, inline(_get(values, path)), where)
    field = find_field(path)
    expected = kinds.describe_field(field) if field else "another value"
    if kind == "value_error.missing":
        parent = ".".join(path[:-1])
        todo = f"add `{path[-1]}:`" + (f" under `{parent}:`" if parent else "") + f", or --set {dotted}=VALUE"
        return Problem(dotted, "this key is missing", expected, todo, where(path))
    value = _get(values, path)
    if path[:2] == ("beam", "options") and isinstance(value, str):
        (value,) = shown_options([value])
    written = "" if isinstance(value, dict) else inline(value)
    if value == "auto" and (measured := known.MEASURED.get(dotted)):
        vary = f"tfx-estimator bench strategies SOURCE --vary {path[-1]}={measured}"
        todo = f"measure it with `{vary}`, and write down what pays"
        return Problem(dotted, "no run chooses it by itself", expected, todo, where(path), written)
    # Of a word or a number, the word is tried first.
    if kind == "value_error.const" and not (_is_number(value) and field and _takes_number(field)):
        return _unknown_value(dotted, str(value), expected, where(path), field)
    if kind == "value_error.str.regex":
        todo = f"for example `{_to_name(str(value))}`" if _to_name(str(value)) else "choose another name"
        return Problem(dotted, "this name cannot be used", expected, todo, where(path), written)
    if kind == "type_error":
        return Problem(dotted, error["msg"], expected, _retype(value, field), where(path), written)
    is_number = kind.startswith("value_error.number") or kind == "value_error.const"
    what = "the value is out of range" if is_number else error["msg"]
    return Problem(dotted, what, expected, "choose another value", where(path), written)


def find_field(path: Path) -> Optional[ModelField]:
    """Returns the declaration's field at a path, if there is one."""
    section: Any = Declaration
    field = None
    for key in path:
        if key.isdigit() and _item(section) is not section:
            section = _item(section)
            continue
        if inner := _named(section):
            section = inner
            continue
        if not kinds.is_class(section, BaseModel):
            return field
        field = section.__fields__.get(key)
        if field is None:
            return None
        section = field.outer_type_
    return field


def all_keys(section: type[BaseModel] = Declaration, path: Path = ()) -> Iterator[Path]:
    """Yields the path of every key of the declaration."""
    for name, field in section.__fields__.items():
        yield (*path, name)
        inner = _item(field.outer_type_)
        if kinds.is_class(inner, BaseModel):
            yield from all_keys(inner, (*path, name))


def _unknown_key(path: Path, value: str, where: Where) -> Problem:
    dotted, key = ".".join(path), path[-1]
    parent = find_field(path[:-1]) if path[:-1] else None
    section = parent.outer_type_ if parent else Declaration
    siblings = list((_named(section) or _item(section)).__fields__)
    expected = "one of " + ", ".join(siblings)
    if reason := known.KEYS.get(dotted) or known.KEYS.get(key):
        return Problem(dotted, f"this key is {reason}", expected, "remove it", where(path), value)
    # A key of a list's item is only looked for in such items.
    in_item = next((index for index, part in enumerate(path[:-1]) if part.isdigit()), 0)
    places: dict[str, str] = {}
    for found in all_keys():
        # To suggest the key of the same name at the top level would repeat what was written.
        if found != (key,) and found[:in_item] == path[:in_item]:
            places.setdefault(found[-1], ".".join(found))
    # A missing `s`, as in `worker`, is nearer than the same word in another section.
    plural = next((name for name in siblings if name.rstrip("s") == key.rstrip("s")), "")
    near = plural or nearest(key, siblings)
    elsewhere = known.ALIASES.get(dotted) or known.ALIASES.get(key) or ("" if plural else places.get(key, ""))
    if not elsewhere and not near and not in_item and len(siblings) >= _MANY_KEYS:
        elsewhere = places.get(nearest(key, places), "")
    todo = f"did you mean `{elsewhere or near}`?" if elsewhere or near else "remove it"
    return Problem(dotted, f"unknown key `{key}`", expected, todo, where(path), value)


def _unknown_value(dotted: str, value: str, expected: str, where: str, field: Optional[ModelField]) -> Problem:
    choices = _choices(field.outer_type_) if field else ()
    # An item of a list has its number at the end.
    refused = known.VALUES.get(re.sub(r"\.\d+$", "", dotted), {})
    if reason := refused.get(value, ""):
        todo = f"choose one of: {', '.join(choices)}"
        return Problem(dotted, f"`{value}`: {reason}; known here: {', '.join(choices)}", expected, todo, where, value)
    near = nearest(value, [*choices, *refused])
    todo = f"did you mean `{near}`?" if near in choices else f"choose one of: {', '.join(choices)}"
    if near in refused:
        todo += f" (`{near}`: {refused[near]})"
    return Problem(dotted, "unknown value", expected, todo, where, inline(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _takes_number(field: ModelField) -> bool:
    return any(kinds.is_class(each, int) or kinds.is_class(each, float) for each in get_args(field.outer_type_))


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words that a field takes, or each item of its list."""
    annotation = _item(annotation)
    alternatives = get_args(annotation) if get_origin(annotation) is Union else (annotation,)
    return tuple(word for each in alternatives if get_origin(each) is Literal for word in get_args(each))


def _item(annotation: Any) -> Any:
    """The type of a list's items; of what is no list, itself."""
    return get_args(annotation)[0] if get_origin(annotation) is tuple else annotation


def _named(annotation: Any) -> Any:
    """The type of a mapping's values, where those are sections; else None."""
    values = get_args(annotation)[1] if get_origin(annotation) is dict else None
    return values if kinds.is_class(values, BaseModel) else None


def _retype(value: Any, field: Optional[ModelField]) -> str:
    """What to do about a value of another kind."""
    annotation = field.outer_type_ if field else None
    if get_origin(annotation) is tuple:
        return "write a list: [first, second]" if isinstance(value, list) else f"write a list: [{inline(value)}]"
    if kinds.is_class(annotation, BaseModel):
        return "write its keys below it, indented; or as {key: value}"
    wants_texts = get_origin(annotation) is dict and get_args(annotation)[1] is str
    if wants_texts and isinstance(value, dict) and not all(isinstance(each, str) for each in value.values()):
        return "put each value in quotes, as YAML reads it as something else"
    if kinds.is_class(annotation, bool):
        return "write true or false"
    alternatives = get_args(annotation) if get_origin(annotation) is Union else (annotation,)
    wants_text = get_origin(annotation) is Literal or kinds.is_class(annotation, str)
    if wants_text and isinstance(value, (bool, int, float)):
        return "put it in quotes, as YAML reads it as something else"
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    wants_number = any(kinds.is_class(each, int) or kinds.is_class(each, float) for each in alternatives)
    if not wants_text and isinstance(value, str) and not value.strip():
        return "write a value"
    if wants_number and isinstance(value, str):
        return "write it without quotes, in digits"
    if value is None:
        return "write a value, or leave it out for the default"
    return "write a value of that kind"


def _to_name(text: str) -> str:
    """The nearest usable name."""
    return re.sub(r"^[^a-z]+", "", re.sub(r"[^a-z0-9]+", "-", text.lower())).strip("-")[:63]


def _get(values: Any, path: Path) -> Any:
    for key in path:
        if isinstance(values, (list, tuple)) and key.isdigit() and int(key) < len(values):
            values = values[int(key)]
        elif isinstance(values, dict) and key in values:
            values = values[key]
        else:
            return None if isinstance(values, dict) else values
    return values
