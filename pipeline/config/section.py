"""The base of every section of the declaration: typed keys, read from plain values; collects all errors at once."""

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

# More is a typo, and past 2**63 an overflow.
MAX_STEPS = 1_000_000_000

Self = TypeVar("Self", bound="Section")
_Path = tuple[str, ...]
# Default marker: the section with its own defaults.
_INNER = object()


class Wrong(NamedTuple):
    """One invalid value: its path within the section, the kind of error, and the message."""

    path: _Path
    # `missing`, `extra`, `kind`, `choice`, `range`, `pattern` or `value`.
    kind: str
    what: str


class ValuesError(ValueError):
    """Invalid values; `rest` is the section with defaults, or placeholders, in their place."""

    def __init__(self, found: list[Wrong], rest: Optional[Section] = None) -> None:
        super().__init__("; ".join(f"{'.'.join(each.path)}: {each.what}" for each in found))
        self.found, self.rest = found, rest


@dataclass(eq=False)
class Key:
    """One key of a section: see `Field`. Its annotation is evaluated on first use."""

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
        """True if the key must be given."""
        return self.given is ...

    @property
    def default(self) -> Any:
        """The default; for a required key, a placeholder that lets further checks run."""
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
        """True if the value may be null."""
        return self._typed[1]

    def read(self, value: Any, path: _Path, wrong: list[Wrong]) -> Any:
        """Returns a plain value as the section holds it; appends what is wrong to the list."""
        if self.expand is not None:
            value = self.expand(value)
        if value is None:
            if self.allow_none:
                return None
            # A section whose lines are all commented out is null in YAML: use its defaults.
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
        default: `...` if the key is required.
        description: For users and editors.
        more: `operational`: does not affect the model, see `Section.split`. `expand`: converts a short form to the
            long one; `short_form`: its JSON Schema. `check`: returns an error message for a value of the right type.
            `schema`: further JSON Schema. All others are `Limits`.
    """
    limits = {name: more.pop(name) for name in Limits._fields if name in more}
    return Key(default, description, Limits(**limits) if limits else None, **more)


def inner(description: str = "", **more: Any) -> Any:
    """Returns a key that holds an optional section, whose keys are all optional too."""
    return Field(_INNER, description, **more)


def shorthand(key: str, kind: type) -> Callable[[Any], Any]:
    """Returns an `expand` that turns a plain value into a mapping: `accuracy` into `{metric: accuracy}`."""
    return lambda value: {key: value} if type(value) is kind else value


def number(default: Any, least: Optional[float], most: Optional[float], description: str, **more: Any) -> Any:
    """Returns the key of a number within inclusive limits; None is no limit."""
    return Field(default, description, ge=least, le=most, **more)


class Section:
    """A closed, immutable part of the declaration: refuses unknown keys and values of another type."""

    __fields__: ClassVar[dict[str, Key]] = {}
    # Further JSON Schema, for the mapping and for a short form of the whole section.
    SCHEMA: ClassVar[Mapping[str, Any]] = {}
    SHORT_FORM: ClassVar[Mapping[str, Any]] = {}
    # Whether `dict` leaves out empty values.
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

    @classmethod
    def take(cls, name: str, kind: type[Section], key: Key) -> None:
        """Adds a key that holds a section of this kind; it may be null if that is its default."""
        key.annotation, key.module = (
            f"Optional[{kind.__name__}]" if key.given is None else kind.__name__,
            kind.__module__,
        )
        cls.__fields__[name] = key

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
        """Returns the section with these plain values; raises ValuesError if any is invalid."""
        if isinstance(values, cls):
            return values
        if reason := kinds.reject(values, cls):
            raise ValuesError([Wrong((), "kind", reason)])
        return cls(**values)

    @classmethod
    def construct(cls: type[Self], /, **values: Any) -> Self:
        """Returns a section of valid values, unchecked, with defaults or placeholders for the others."""
        made = cls.__new__(cls)
        made.__dict__.update({name: each.default for name, each in cls.__fields__.items()})
        made.__dict__.update(values)
        return made

    def copy(self: Self, update: Mapping[str, Any]) -> Self:
        """Returns the section with other valid values, unchecked."""
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
        """Returns whether every required key has a value: an invalid one is None."""
        return all(self.__dict__[name] is not None for name, each in self.__fields__.items() if each.required)

    def sections(self) -> Iterator[tuple[str, Any]]:
        """Yields (key, section) for each key that holds a section."""
        yield from ((name, value) for name, value in self.__dict__.items() if isinstance(value, Section))

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the values that affect the model, and those of fields with `operational=True`.

        Only the former are in cache keys: a change of timeouts, restarts or logging reruns nothing.
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
    """Returns a value of the right type as a section holds it; appends what is out of limits to the list."""
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
