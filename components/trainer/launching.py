"""Who trains in place of this machine's tasks: the entry point of a platform's step may set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

# Takes a job, its settings and the folder of its logs; returns the outcome, or None for a training on this machine.
launcher: Optional[Callable[..., Any]] = None
