"""What is extracted beside TFMA's own, handed over by name; TFX reloads the module that it calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Extras:
    """What is to be extracted.

    Args:
        transform_graph: Folder of the graph; None where no feature is wanted.
        features: Of what it returns.
        logits: Output with logits, by model name; empty where there is no baseline.
        of_two: Are they one number an example.
    """

    transform_graph: Optional[str] = None
    features: tuple[str, ...] = ()
    logits: Mapping[str, str] = ()  # type: ignore[assignment]
    of_two: bool = False

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
