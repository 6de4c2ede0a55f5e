"""The base of every part of the declaration."""

from __future__ import annotations

from pydantic.v1 import BaseModel, Extra


class Section(BaseModel):
    """A closed, immutable part of the declaration: unknown keys are refused."""

    class Config:
        """pydantic's settings."""

        extra = Extra.forbid
        frozen = True
        validate_all = True
