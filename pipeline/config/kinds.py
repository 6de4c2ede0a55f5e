"""Which YAML values a key takes, without silent coercion; and descriptions of what is expected."""

from __future__ import annotations

import math
import operator
import re
import typing
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Optional

# The largest int64, which a file or a protocol buffer can hold.
_MAX_INT = 2**63 - 1


class Limits(NamedTuple):
    """Limits of a number, as in JSON Schema; or the pattern and length of a text."""

    ge: Optional[float] = None
    gt: Optional[float] = None
    le: Optional[float] = None
    lt: Optional[float] = None
    pattern: Optional[str] = None
    min_length: Optional[int] = None

    def broken(self, value: Any) -> Optional[tuple[str, str]]:
        """Returns the kind of limit that a value breaks, and a message; None if it breaks none."""
        if isinstance(value, str):
            if self.pattern is not None and not re.match(self.pattern, value):
                return "pattern", "this name cannot be used"
            return ("value", "it is empty") if len(value) < (self.min_length or 0) else None
        bounds = ((operator.ge, self.ge), (operator.gt, self.gt), (operator.le, self.le), (operator.lt, self.lt))
        is_within = all(holds(value, limit) for holds, limit in bounds if limit is not None)
        return None if is_within else ("range", "the value is out of range")

    def __str__(self) -> str:
        words = {"at least": self.ge, "more than": self.gt, "at most": self.le, "less than": self.lt}
        return "".join(f", {word} {limit:,}" for word, limit in words.items() if limit is not None)


def is_section(kind: Any) -> bool:
    """Returns whether the type is a section's."""
    return hasattr(kind, "__fields__")


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the type itself, without limits."""
    if typing.get_origin(kind) is typing.Annotated:
        return alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) is typing.Union:
        return tuple(each for part in typing.get_args(kind) for each in alternatives(part))
    return (kind,)


def item_of(kind: Any) -> Any:
    """Returns the type of a list's items; any other type as it is."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


def named_of(kind: Any) -> Any:
    """Returns the type of a mapping's values if they are sections; else None."""
    values = typing.get_args(kind)[1] if typing.get_origin(kind) is dict else None
    return values if is_section(values) else None


def choices(kind: Any) -> tuple[str, ...]:
    """Returns the literals that a key, or an item of its list, takes."""
    words = (each for each in alternatives(item_of(kind)) if typing.get_origin(each) is Literal)
    return tuple(word for each in words for word in typing.get_args(each))


def reject(value: Any, kind: Any) -> str:
    """Returns why a value is not of a type; empty if it is. Ignores limits and choices."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return reject(value, arguments[0])
    if origin is typing.Union:
        return _reject_all(value, arguments)
    if origin is tuple:
        return _reject_items(value, arguments)
    if origin is dict and not isinstance(value, dict):
        return f"{name(value)} is no mapping"
    if origin is dict and arguments[1] is not Any:
        return _reject_free(dict.fromkeys(value)) or _first(
            (key, reject(each, arguments[1])) for key, each in value.items()
        )
    if origin is dict or kind is Any:
        return _reject_free(value)
    if origin is Literal or kind is str:
        return "" if isinstance(value, str) else f"{name(value)} is no text"
    if is_section(kind):
        return "" if isinstance(value, (dict, kind)) else f"{name(value)} is no section"
    if kind is bool:
        return "" if isinstance(value, bool) else f"{name(value)} is neither true nor false"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name(value)} is no number"
    if not _is_finite(value):
        return "the number is not finite, or too large"
    return "it is no whole number" if kind is int and not isinstance(value, int) else ""


def name(value: Any) -> str:
    """Names a YAML value's type."""
    if value is None:
        return "null"
    kinds = {bool: "true/false", int: "a whole number", float: "a fraction", str: "text", dict: "a mapping"}
    return kinds.get(type(value), "a list")


def describe(kind: Any) -> str:
    """Describes the values of a type, for example `a whole number, at least 1`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return f"{describe(arguments[0])}{arguments[1]}"
    if origin is Literal:
        return arguments[0] if len(arguments) == 1 else "one of " + ", ".join(arguments)
    if origin is typing.Union:
        return ", or ".join(map(describe, arguments))
    if origin is tuple:
        item = describe(arguments[0])
        return f"a list, each {item}" if arguments[-1] is Ellipsis else f"a list of {len(arguments)}, each {item}"
    if origin is dict:
        return "a mapping" if arguments[1] is Any else f"a mapping, each value {describe(arguments[1])}"
    if is_section(kind):
        return "a section with some of the keys " + ", ".join(kind.__fields__)
    words = {Any: "any value", bool: "true or false", str: "text", int: "a whole number", float: "a number"}
    return words[kind]


def _reject_all(value: Any, kinds: tuple[Any, ...]) -> str:
    """Returns why a value is of none of several types; of the intended one if that is clear."""
    reasons = [reject(value, kind) for kind in kinds]
    if value == "" and any(typing.get_origin(kind) is Literal for kind in kinds):
        return "it is empty"
    if not all(reasons):
        return ""
    meant = [reason for reason in reasons if not reason.startswith(f"{name(value)} is no ")]
    return meant[0] if meant else " and ".join(dict.fromkeys(reasons))


def _reject_items(value: Any, arguments: tuple[Any, ...]) -> str:
    if not isinstance(value, (list, tuple)):
        return f"{name(value)} is no list"
    if arguments[-1] is not Ellipsis and len(value) != len(arguments):
        return f"the list has {len(value)} items"
    return _first((f"item {index}", reject(item, arguments[0])) for index, item in enumerate(value, 1))


def _reject_free(value: Any) -> str:
    """Refuses values that JSON does not round-trip."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return "a key is no text"
        return _first((key, _reject_free(item)) for key, item in value.items())
    if isinstance(value, list):
        return _first((f"item {index}", _reject_free(item)) for index, item in enumerate(value, 1))
    if value is None or type(value) in (bool, str):
        return ""
    if type(value) in (int, float):
        return "" if _is_finite(value) else "a number is not finite, or too large"
    return f"{type(value).__name__} is no YAML value"


def _first(reasons: Iterable[tuple[str, str]]) -> str:
    """Returns the first non-empty reason, with its name."""
    return next((f"{called}: {reason}" for called, reason in reasons if reason), "")


def _is_finite(value: float) -> bool:
    return abs(value) <= _MAX_INT if isinstance(value, int) else math.isfinite(value)
