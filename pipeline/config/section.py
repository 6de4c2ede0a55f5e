"""The base of every part of the declaration: typed keys, read from plain values, with all that is wrong at once."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Optional, TypeVar

from tfx_estimator.pipeline.config import kinds
from tfx_estimator.pipeline.config.kinds import Limits

# More is a slip of the finger, and past 2**63 an overflow.
MAX_STEPS = 1_000_000_000

Self = TypeVar("Self", bound="Section")
_Path = tuple[str, ...]
# In the place of a default: a section whose keys all have one.
_INNER = object()


class Wrong(NamedTuple):
    """What is wrong with one value, at the path from the section that was read, and why."""

    path: _Path
    # `missing`, `extra`, `kind`, `choice`, `range`, `pattern` or `value`.
    kind: str
    what: str


class ValuesError(ValueError):
    """Values that are no section; `rest` is one with defaults, or what stands in for them, in their place."""

    def __init__(self, found: list[Wrong], rest: Optional[Section] = None) -> None:
        super().__init__("; ".join(f"{'.'.join(each.path)}: {each.what}" for each in found))
        self.found, self.rest = found, rest


@dataclass(eq=False)
class Key:
    """One key of a section: see `Field`. Its type is looked at when it is first asked for."""

    given: Any = ...
    description: str = ""
    limits: Optional[Limits] = None
    operational: bool = False
    expand: Optional[Callable[[Any], Any]] = None
    check: Optional[Callable[[Any], str]] = None
    schema: Mapping[str, Any] = field(default_factory=dict)
    short_form: Optional[Mapping[str, Any]] = None
    annotation: str = ""
    module: str = ""

    @property
    def required(self) -> bool:
        """Must the key be there."""
        return self.given is ...

    @property
    def default(self) -> Any:
        """What holds where the key is left out; where it must not be, what stands in for it."""
        if self.given is _INNER:
            self.given = self.kind()
        if self.required:
            return self.kind.construct() if kinds.is_section(self.kind) else "stand_in" if self.kind is str else None
        return dict(self.given) if isinstance(self.given, dict) else self.given

    @functools.cached_property
    def _typed(self) -> tuple[Any, bool]:
        typed = eval(self.annotation, vars(sys.modules[self.module]))
        alternatives = typing.get_args(typed) if typing.get_origin(typed) is typing.Union else (typed,)
        others = tuple(each for each in alternatives if each is not types.NoneType)
        kind: Any = typing.Union[others]  # type: ignore[valid-type]
        return (typing.Annotated[kind, self.limits] if self.limits else kind), len(others) < len(alternatives)

    @property
    def kind(self) -> Any:
        """The type, without null."""
        return self._typed[0]

    @property
    def allow_none(self) -> bool:
        """May it be null."""
        return self._typed[1]

    def read(self, value: Any, path: _Path, wrong: list[Wrong]) -> Any:
        """Returns a plain value as the section holds it; what is wrong is added to a list."""
        if self.expand is not None:
            value = self.expand(value)
        if value is None:
            if self.allow_none:
                return None
            # A section whose lines are all commented out is null in YAML: take it for its defaults.
            value = {} if kinds.is_section(self.kind) else None
        before = len(wrong)
        if reason := kinds.reject(value, self.kind):
            wrong.append(Wrong(path, "kind", reason))
            return self.default
        found = _read(value, self.kind, path, wrong)
        if self.check is not None and len(wrong) == before and (reason := self.check(found)):
            wrong.append(Wrong(path, "value", reason))
        is_usable = len(wrong) == before or (isinstance(found, Section) and found.has_all())
        return found if is_usable else self.default


def Field(default: Any = ..., description: str = "", **more: Any) -> Any:  # noqa: N802
    """Returns a key of a section.

    Args:
        default: `...` where the key must be there.
        description: For people and editors.
        more: `operational`: it decides no result, see `Section.split`. `expand`: writes out a short form;
            `short_form`: that, for editors. `check`: says what is wrong with a value of the right kind. `schema`: what
            else editors are to know. Others are `Limits`.
    """
    limits = {name: more.pop(name) for name in Limits._fields if name in more}
    return Key(default, description, Limits(**limits) if limits else None, **more)


def inner(description: str = "", **more: Any) -> Any:
    """Returns a key that holds a section, which may be left out, as each of its keys may."""
    return Field(_INNER, description, **more)


def shorthand(key: str, kind: type) -> Callable[[Any], Any]:
    """Returns what writes a plain value as a mapping of one key: `accuracy` as `{metric: accuracy}`."""
    return lambda value: {key: value} if type(value) is kind else value


def number(default: Any, least: Optional[float], most: Optional[float], description: str, **more: Any) -> Any:
    """Returns the key of a number within limits, which are allowed themselves; None is no limit."""
    return Field(default, description, ge=least, le=most, **more)


class Section:
    """A closed, immutable part of the declaration: unknown keys and values of another kind are refused."""

    __fields__: ClassVar[dict[str, Key]] = {}
    # What else editors are told: of the mapping, and of a short form of the whole.
    SCHEMA: ClassVar[Mapping[str, Any]] = {}
    SHORT_FORM: ClassVar[Mapping[str, Any]] = {}
    # Is what was left open no plain value.
    SPARSE: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        own = {}
        for name, annotation in inspect.get_annotations(cls).items():
            if not name.startswith("_") and not annotation.startswith("ClassVar"):
                default = cls.__dict__.get(name, ...)
                own[name] = default if isinstance(default, Key) else Key(default)
                own[name].annotation, own[name].module = annotation, cls.__module__
                if name in cls.__dict__:
                    delattr(cls, name)
        cls.__fields__ = {**cls.__fields__, **own}

    def __init__(self, /, **values: Any) -> None:
        wrong: list[Wrong] = []
        self._fill(values, (), wrong)
        if wrong:
            raise ValuesError(wrong, self)

    def _fill(self, values: Mapping[str, Any], path: _Path, wrong: list[Wrong]) -> None:
        for name, each in self.__fields__.items():
            if name in values:
                self.__dict__[name] = each.read(values[name], (*path, name), wrong)
                continue
            self.__dict__[name] = each.default
            if each.required:
                wrong.append(Wrong((*path, name), "missing", "this key is missing"))
        wrong += [Wrong((*path, name), "extra", "unknown key") for name in values if name not in self.__fields__]

    @classmethod
    def parse_obj(cls: type[Self], values: Any) -> Self:
        """Returns the section that plain values are; raises a ValuesError where they are none."""
        if isinstance(values, cls):
            return values
        if reason := kinds.reject(values, cls):
            raise ValuesError([Wrong((), "kind", reason)])
        return cls(**values)

    @classmethod
    def construct(cls: type[Self], /, **values: Any) -> Self:
        """Returns a section of values that are right, and defaults, or what stands in for them, of others."""
        made = cls.__new__(cls)
        made.__dict__.update({name: each.default for name, each in cls.__fields__.items()})
        made.__dict__.update(values)
        return made

    def copy(self: Self, update: Mapping[str, Any]) -> Self:
        """Returns the section with other values, which are right."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, **update)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def has_all(self) -> bool:
        """Tells whether no key that must be there is wrong, and None therefore."""
        return all(self.__dict__[name] is not None for name, each in self.__fields__.items() if each.required)

    def sections(self) -> Iterator[tuple[str, Any]]:
        """Yields the keys that hold a section, with it."""
        yield from ((name, value) for name, value in self.__dict__.items() if isinstance(value, Section))

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the values that decide a result, and those of fields with `operational=True`.

        Cache keys hold the former alone: deadlines, restarts and logging may change, and nothing is done again.
        """
        deciding: dict[str, Any] = {}
        operational: dict[str, Any] = {}
        for name, value in self.dict().items():
            section = getattr(self, name)
            if self.__fields__[name].operational:
                operational[name] = value
            elif isinstance(section, Section):
                deciding[name], operational[name] = section.split()
            else:
                deciding[name] = value
        return deciding, {name: value for name, value in operational.items() if value != {}}

    def dict(self) -> dict[str, Any]:
        """Returns plain values, which `parse_obj` reads back."""
        empty: tuple[Any, ...] = (None, (), {}) if self.SPARSE else ()
        return {name: _plain(value) for name, value in self.__dict__.items() if value not in empty}


def _read(value: Any, kind: Any, path: _Path, wrong: list[Wrong], limits: Optional[Limits] = None) -> Any:
    """A value of the right kind as a section holds it; what is out of limits is added to a list."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _read(value, arguments[0], path, wrong, arguments[1])
    if origin is typing.Union:
        meant = next(each for each in arguments if not kinds.reject(value, each))
        return _read(value, meant, path, wrong, limits)
    if origin is typing.Literal:
        if value not in arguments:
            wrong.append(Wrong(path, "choice", "unknown value"))
    elif origin is tuple:
        return tuple(_read(item, arguments[0], (*path, str(index)), wrong) for index, item in enumerate(value))
    elif origin is dict:
        return {key: _read(item, arguments[1], (*path, key), wrong) for key, item in value.items()}
    elif kinds.is_section(kind):
        if isinstance(value, Section):
            return value
        made = kind.__new__(kind)
        made._fill(value, path, wrong)
        return made
    elif limits is not None and (broken := limits.broken(value)):
        wrong.append(Wrong(path, *broken))
    return float(value) if kind is float else value


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.dict()
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
