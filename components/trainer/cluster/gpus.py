"""Which GPUs a training task sees."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Optional

# The variable says which GPUs a process sees, and in which order.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"\d+|(GPU|MIG)-\S+", re.ASCII)


def allotted_gpus(environment: Mapping[str, str]) -> Optional[tuple[str, ...]]:
    """The GPUs that a process was allotted by CUDA_VISIBLE_DEVICES.

    Returns:
        Index, or UUID, of each, as CUDA reads them: up to the first that is none, such as -1. None if the variable
        is not set: all that there are.
    """
    text = environment.get(VISIBLE_GPUS)
    if text is None:
        return None
    return tuple(itertools.takewhile(_GPU.fullmatch, map(str.strip, text.split(","))))


def visible_gpus(gpus: Sequence[int], environment: Mapping[str, str]) -> str:
    """Writes CUDA_VISIBLE_DEVICES for a task, within an allotment."""
    allotted = allotted_gpus(environment)
    if allotted is None:
        return ",".join(map(str, gpus))
    return ",".join(allotted[index] for index in gpus if index < len(allotted))
