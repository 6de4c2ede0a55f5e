"""The base of every part of the declaration."""

from __future__ import annotations

from typing import Any

from pydantic.v1 import BaseModel, Extra, validator
from pydantic.v1.fields import ModelField

from tfx_estimator.pipeline.config.kinds import reject


class Section(BaseModel):
    """A closed, immutable part of the declaration: unknown keys and values of another kind are refused."""

    class Config:
        """pydantic's settings."""

        extra = Extra.forbid
        frozen = True
        validate_all = True

        @staticmethod
        def schema_extra(schema: dict[str, Any], model: type[Section]) -> None:
            """Tells editors that null is allowed where it is: pydantic leaves that out."""
            for name, field in model.__fields__.items():
                if not field.allow_none:
                    continue
                typed = schema["properties"][name]
                outer = {key: typed.pop(key) for key in ("title", "description", "default") if key in typed}
                schema["properties"][name] = {**outer, "default": None, "anyOf": [typed, {"type": "null"}]}

    @validator("*", pre=True)
    def _of_its_kind(cls, value: Any, field: ModelField) -> Any:  # noqa: N805
        if value is None and field.allow_none:
            return value
        if reason := reject(value, field.outer_type_):
            raise TypeError(reason)
        return value
