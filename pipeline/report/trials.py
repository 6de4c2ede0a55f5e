"""What a Tuner found: read, and said in one line; imports no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.config.put_values import TRIALS_FILE, tell_values

_COMPLETED = "completed"


def read_tuning(uri: str) -> Optional[dict[str, Any]]:
    """Reads what a Tuner found.

    Args:
        uri: Of its `tuner_results`.

    Returns:
        As `trials.json` holds it; None where it is gone.
    """
    from tfx.dsl.io import fileio

    path = os.path.join(uri, TRIALS_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return json.loads(file.read())


def tell_best(found: Mapping[str, Any]) -> str:
    """Says in one line which values were used, and why.

    Args:
        found: As of `read_tuning`.
    """
    trials = found["trials"]
    best = next(each for each in trials if each["number"] == found["best"])
    failed = sum(each["status"] != _COMPLETED for each in trials)
    more = f", {failed} of which failed" if failed else ""
    metric = found["objective"]["metric"]
    return f"{tell_values(best['values'])}: {metric} {best['score']:.4f}, trial {best['number']} of {len(trials)}{more}"
