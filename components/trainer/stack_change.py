"""Says once that a pipeline's last run was on another stack, and whether what it has trained still counts."""

from __future__ import annotations

import json
import os

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.paths import is_address

# Beside the artifacts of a Trainer.
FILE = "stack.json"

logger = get_logger("trainer")


def look_back(key: str, place: str, execution: str) -> None:
    """Compares this run's stack, and the key of its training, with the last run's, and notes them for the next.

    Args:
        key: Of the training: the same for those that differ in nothing but their length.
        place: Where the Trainer's artifacts lie.
        execution: This one's number, by which its artifacts lie there.
    """
    path = os.path.join(place, FILE)
    # Earlier releases, which were for one stack alone, have noted nothing.
    first = {"stack": stacks.LEGACY.name} if _has_others(os.path.join(place, "model_run"), execution) else {}
    before, now = read_json(path) or first, {"stack": stacks.current().name, "key": key}
    if before == now:
        return
    if before and before["stack"] != now["stack"]:
        changed = f"the last run here was on {before['stack']}, and this one is on {now['stack']}: the Trainer's key"
        if before.get("key") == now["key"]:
            logger.info(f"{changed} is the same, and what was trained counts", extra=STAYS)
        else:
            why = "as the declaration, the data, the code or the release of tfx-estimator has changed, too"
            logger.info(f"{changed} is another, {why}: training starts at step 0", extra=STAYS)
    if not is_address(place):
        os.makedirs(place, exist_ok=True)
    write_whole(path, json.dumps(now))


def _has_others(folder: str, own: str) -> bool:
    return os.path.isdir(folder) and any(name != own for name in os.listdir(folder))
