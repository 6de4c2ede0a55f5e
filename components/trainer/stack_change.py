"""Says once that a pipeline's last run was on another stack, and whether what it has trained still counts."""

from __future__ import annotations

import json
import os

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.log import STAYS, get_logger

# Beside the artifacts of a Trainer.
FILE = "stack.json"

logger = get_logger("trainer")


def look_back(key: str, place: str) -> None:
    """Compares this run's stack, and the key of its training, with the last run's, and notes them for the next.

    Args:
        key: Of the training: the same for those that differ in nothing but their length.
        place: Where the Trainer's artifacts lie.
    """
    path = os.path.join(place, FILE)
    before, now = read_json(path) or {}, {"stack": stacks.current().name, "key": key}
    if before == now:
        return
    if before and before["stack"] != now["stack"]:
        changed = f"the last run here was on {before['stack']}, and this one is on {now['stack']}: the Trainer's key"
        if before["key"] == now["key"]:
            logger.info(f"{changed} is the same, and what was trained counts", extra=STAYS)
        else:
            why = "as the declaration, the data or the code has changed, too"
            logger.info(f"{changed} is another, {why}: training starts at step 0", extra=STAYS)
    write_whole(path, json.dumps(now))
