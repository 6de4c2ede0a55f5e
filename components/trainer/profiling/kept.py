"""Of which steps a profile is that is there already."""

from __future__ import annotations

import json
import os
import re
from typing import Optional

from tfx.dsl.io import fileio

from tfx_estimator.pipeline.config.runtime import PROFILE_JSON, PROFILES, Profile

# In a summary: what was declared.
DECLARED = "declared"
# A task's folder; what the user's own code has put beside it is not ours.
_TASK = re.compile(r"[a-z_]+-\d+")


def is_of(folder: str, declared: Optional[Profile]) -> bool:
    """Tells whether a task's profile was made, of the steps that are declared.

    Args:
        declared: Which steps; None are none.
    """
    path = os.path.join(folder, PROFILE_JSON)
    if declared is None or not fileio.exists(path):
        return False
    try:
        with fileio.open(path) as file:
            found = json.loads(file.read())
    except ValueError:
        return False
    return isinstance(found, dict) and found.get(DECLARED) == declared.dict()


def drop_others(training_dir: str, declared: Optional[Profile]) -> None:
    """Removes what is there of other steps, by a training that goes on now: the results would tell it as theirs.

    Args:
        declared: Which steps are declared now; None are none.
    """
    profiles = os.path.join(training_dir, PROFILES)
    names = [name.rstrip("/") for name in (fileio.listdir(profiles) if fileio.exists(profiles) else ())]
    for name in filter(_TASK.fullmatch, names):
        if not is_of(folder := os.path.join(profiles, name), declared):
            fileio.rmtree(folder)
