"""The base of every part of the declaration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from pydantic.v1 import BaseModel, Extra, Field, validator
from pydantic.v1.fields import ModelField

from tfx_estimator.pipeline.config.kinds import is_class, reject

# More is a slip of the finger, and past 2**63 an overflow.
MAX_STEPS = 1_000_000_000


class Section(BaseModel):
    """A closed, immutable part of the declaration: unknown keys and values of another kind are refused."""

    class Config:
        """pydantic's settings."""

        extra = Extra.forbid
        frozen = True
        validate_all = True

        @staticmethod
        def schema_extra(schema: dict[str, Any], model: type[Section]) -> None:
            """Tells editors that null, or a short form, is allowed where it is: pydantic leaves that out."""
            for name, field in model.__fields__.items():
                typed = schema["properties"][name]
                typed.pop("operational", None)
                others = [form] if (form := typed.pop("short_form", None)) else []
                others += [{"type": "null"}] if field.allow_none else []
                if not others:
                    continue
                outer = {key: typed.pop(key) for key in ("title", "description", "default") if key in typed}
                if field.allow_none:
                    outer.setdefault("default", None)
                schema["properties"][name] = {**outer, "anyOf": [typed, *others]}

    @validator("*", pre=True)
    def _of_its_kind(cls, value: Any, field: ModelField) -> Any:  # noqa: N805
        if value is None and (field.allow_none or is_class(field.outer_type_, BaseModel)):
            # A section whose lines are all commented out is null in YAML: take it for its defaults.
            return None if field.allow_none else {}
        if reason := reject(value, field.outer_type_):
            raise TypeError(reason)
        return value

    def sections(self) -> Iterator[tuple[str, Any]]:
        """Yields the keys that hold a section, with it."""
        yield from ((name, value) for name in self.__fields__ if isinstance(value := getattr(self, name), Section))

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the values that decide a result, and those of fields with `Field(…, operational=True)`.

        Cache keys hold the former alone: deadlines, restarts and logging may change, and nothing is done again.
        """
        deciding: dict[str, Any] = {}
        operational: dict[str, Any] = {}
        for name, value in self.dict().items():
            section = getattr(self, name)
            if self.__fields__[name].field_info.extra.get("operational"):
                operational[name] = value
            elif isinstance(section, Section):
                deciding[name], operational[name] = section.split()
            else:
                deciding[name] = value
        return deciding, {name: value for name, value in operational.items() if value != {}}


def number(default: Any, least: Optional[float], most: Optional[float], description: str, **more: Any) -> Any:
    """Returns the field of a number within limits, whose annotation is a plain int or float.

    Args:
        least: None is no limit; with `gt` or `lt` among the others the limit itself is none of them.
        more: Other arguments of `Field`.
    """
    return Field(default=default, ge=least, le=most, description=description, **more)


def allow_short(schema: dict[str, Any], short: dict[str, Any]) -> None:
    """Tells editors of a short form of a section, in place."""
    # Under `python -OO` there are no descriptions.
    head: dict[str, Any] = {key: schema.pop(key) for key in ("title", "description") if key in schema}
    mapping = dict(schema)
    schema.clear()
    schema.update(head, anyOf=[short, mapping])
