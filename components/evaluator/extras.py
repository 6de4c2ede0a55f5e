"""What is extracted beside TFMA's own, handed over by name; TFX reloads the module that it calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Extras:
    """What is to be extracted."""

    transform_graph: Optional[str] = None  # folder of the graph, where a feature is wanted
    features: tuple[str, ...] = ()  # of what it returns
    # Output with logits, by model name, which is empty where there is no baseline.
    logits: Mapping[str, str] = field(default_factory=dict)
    of_two: bool = False  # are they one number an example

    def __bool__(self) -> bool:
        return bool(self.features or self.logits)


# TFX calls `custom_extractors` by its name.
_EXTRAS: ContextVar[Extras] = ContextVar("extras")


@contextlib.contextmanager
def extracting(extras: Extras) -> Iterator[None]:
    """Has `custom_extractors` extract it, within the context."""
    token = _EXTRAS.set(extras)
    try:
        yield
    finally:
        _EXTRAS.reset(token)


def current() -> Extras:
    """Returns what the context is to extract."""
    return _EXTRAS.get()
