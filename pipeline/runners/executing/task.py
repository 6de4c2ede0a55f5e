"""A task of a compiled pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Task:
    """One task of a compiled pipeline.

    Args:
        told: As the pipeline has it: inputs, retries, caching.
        component: Its interface: the inputs and outputs of each kind.
        executor: Its container, resolver or importer.
        upstream: The tasks that it waits for.
    """

    name: str
    told: Mapping[str, Any]
    component: Mapping[str, Any]
    executor: Mapping[str, Any]
    upstream: tuple[str, ...]

    @property
    def container(self) -> Optional[Mapping[str, Any]]:
        """What starts it; None for a resolver or an importer, which a service does by itself."""
        return self.executor.get("container")

    @property
    def tries(self) -> int:
        """How often a service starts it at most."""
        return 1 + int(self.told.get("retryPolicy", {}).get("maxRetryCount", 0))

    @property
    def is_cached(self) -> bool:
        """May what it made before take the place of its execution."""
        return bool(self.told.get("cachingOptions", {}).get("enableCache"))

    def definitions(self, direction: str, kind: str) -> Mapping[str, Any]:
        """Returns what the component says of its `input` or `output`, `artifacts` or `parameters`, by key."""
        return self.component.get(f"{direction}Definitions", {}).get(kind, {})

    def given(self, kind: str) -> Mapping[str, Any]:
        """Returns where its input `artifacts` or `parameters` come from, by key."""
        return self.told.get("inputs", {}).get(kind, {})
