"""Turns invalid values into problems that say what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Optional, get_args, get_origin

from tfx_estimator.pipeline.config import kinds, known, pod_patch
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.section import Key, Section, Wrong
from tfx_estimator.pipeline.config.strategies import ALIASES
from tfx_estimator.pipeline.config.yaml_text import Path, inline

Where = Callable[[Path], str]
# With fewer keys in a section, the message lists them all and suggests no similar key of another section.
_MANY_KEYS = 6
# A message lists all names of a section of so many.
_MOST_NAMES = 12


def explain(wrong: Wrong, values: Any, where: Where) -> Problem:
    """Explains an invalid value; `where` returns the position of a path's value."""
    path, kind, what = wrong
    dotted, value = ".".join(path), _get(values, path)
    if kind == "extra":
        return _unknown_key(path, value, where)
    field = find_field(path)
    expected = describe_field(field) if field else "another value"
    if kind == "missing":
        parent = ".".join(path[:-1])
        todo = f"add `{path[-1]}:`" + (f" under `{parent}:`" if parent else "") + f", or --set {dotted}=VALUE"
        return Problem(dotted, what, expected, todo, where(path))
    written = "" if isinstance(value, dict) else inline(value)
    if kind == "choice":
        return _unknown_value(dotted, value, expected, where(path), kinds.choices(field.kind) if field else ())
    todo = "choose another value"
    if kind == "pattern" and path == ("name",):
        todo = f"for example `{_to_name(str(value))}`" if _to_name(str(value)) else "choose another name"
    elif kind == "kind" and field:
        todo = _retype(value, field.kind)
    return Problem(dotted, what, expected, todo, where(path), written)


def describe_field(field: Key) -> str:
    """Describes the values of a key, and its meaning."""
    words = kinds.describe(field.kind) + (", or null" if field.allow_none else "")
    return f"{words} ({field.description})" if field.description else words


def find_field(path: Path) -> Optional[Key]:
    """Returns the declaration's key at a path, if there is one."""
    section: Any = Declaration
    field = None
    for key in path:
        if key.isdigit() and kinds.item_of(section) is not section:
            section = kinds.item_of(section)
        elif inside := kinds.named_of(section):
            section = inside
        elif not kinds.is_section(section):
            return field
        else:
            field = section.__fields__.get(key)
            if field is None:
                return None
            section = field.kind
    return field


def all_keys(section: type[Section] = Declaration, path: Path = ()) -> Iterator[Path]:
    """Yields the path of every key of the declaration."""
    for name, field in section.__fields__.items():
        yield (*path, name)
        inside = kinds.item_of(field.kind)
        if kinds.is_section(inside):
            yield from all_keys(inside, (*path, name))


def _unknown_key(path: Path, value: Any, where: Where) -> Problem:
    dotted, key = ".".join(path), path[-1]
    parent = find_field(path[:-1]) if path[:-1] else None
    section = parent.kind if parent else Declaration
    siblings = list((kinds.named_of(section) or kinds.item_of(section)).__fields__)
    expected = f"one of {_listed(siblings, key)}"
    # Suggest a key of a list's item only from such items.
    in_item = next((index for index, part in enumerate(path[:-1]) if part.isdigit()), 0)
    places: dict[str, str] = {}
    for found in all_keys():
        # The same key at the top level is what was written.
        if found != (key,) and found[:in_item] == path[:in_item]:
            places.setdefault(found[-1], ".".join(found))
    # A missing `s`, as in `worker`, goes before the same word in another section.
    plural = next((name for name in siblings if name.rstrip("s") == key.rstrip("s")), "")
    near = plural or nearest(key, siblings)
    elsewhere = known.ALIASES.get(dotted) or known.ALIASES.get(key) or ("" if plural else places.get(key, ""))
    if not elsewhere and not near and not in_item and len(siblings) >= _MANY_KEYS:
        elsewhere = places.get(nearest(key, places), "")
    todo = f"did you mean `{elsewhere or near}`?" if elsewhere or near else "remove it"
    if (key in pod_patch.FORMER or not near) and (moved := pod_patch.instead(path, value)):
        expected, todo = "deploy.pod_patch, for what only Kubernetes' pods have", moved
    return Problem(dotted, f"unknown key `{key}`", expected, todo, where(path), inline(value))


def _listed(names: Sequence[str], key: str) -> str:
    """Returns names; of many, those that are most like a key."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    first = sorted(names, key=lambda name: -difflib.SequenceMatcher(None, key, name).ratio())[:_MOST_NAMES]
    return f"{', '.join(first)}, and {len(names) - len(first)} more"


def _unknown_value(dotted: str, value: str, expected: str, where: str, choices: Sequence[str]) -> Problem:
    near = ALIASES.get(value) or nearest(value, choices)
    todo = f"did you mean `{near}`?" if near in choices else f"choose one of: {', '.join(choices)}"
    return Problem(dotted, "unknown value", expected, todo, where, inline(value))


def _retype(value: Any, kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "write a list: [first, second]" if isinstance(value, list) else f"write a list: [{inline(value)}]"
    if kinds.is_section(kind):
        return "write its keys below it, indented; or as {key: value}"
    wants_texts = get_origin(kind) is dict and get_args(kind)[1] is str
    if wants_texts and isinstance(value, dict) and not all(isinstance(each, str) for each in value.values()):
        return "put each value in quotes: YAML reads it as another type"
    if kind is bool:
        return "write true or false"
    wants_text = all(each is str or get_origin(each) is Literal for each in kinds.alternatives(kind))
    if wants_text and isinstance(value, (bool, int, float)):
        return "put it in quotes: YAML reads it as another type"
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if not wants_text and isinstance(value, str) and not value.strip():
        return "write a value"
    if isinstance(value, str) and {int, float} & {*kinds.alternatives(kind)}:
        return "write it without quotes, in digits"
    if value is None:
        return "write a value, or leave it out for the default"
    return "write a value of that kind"


def _to_name(text: str) -> str:
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
