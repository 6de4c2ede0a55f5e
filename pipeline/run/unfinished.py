"""What is known of a run so far: its watcher makes the summary of it where the run ends without a word."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Optional

from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.pipeline.runners.listener import FAILED, INTERRUPTED, NOT_REACHED

_FILE = "so_far.json"


def keep(summary: Summary, path: str, component: str, prints: bool) -> None:
    """Keeps it among the temporary files of the run; does nothing where nobody watches.

    Args:
        path: Where it is to be written at the end.
        component: Which runs; empty if none does.
        prints: Whether it is to be printed as well.
    """
    if folder := scratch.of_this_run():
        known = {"path": path, "component": component, "prints": prints, "begun": summary.begun}
        # An error here must not hide how the run ended.
        with contextlib.suppress(OSError):
            write_json(os.path.join(folder, _FILE), {**known, "summary": summary.to_dict()})


def begin() -> None:
    """Forgets what a run before this one, of the same process, has noted."""
    scratch.note(scratch.TRAINING_FOLDER, "")


def training_folder(folder: str) -> Optional[str]:
    """Returns where a training that did not end well has left its things; None if none has."""
    noted = scratch.noted(folder, scratch.TRAINING_FOLDER)
    # A run that was killed while it published may have moved it already.
    return noted if noted and (is_address(noted) or os.path.isdir(noted)) else None


def complete(folder: str, error: BaseException) -> Optional[dict[str, Any]]:
    """Writes the summary of a run that could not.

    Returns:
        The summary, if it is to be printed.
    """
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):  # it ended before it began
        return None
    told = known["summary"]
    ended = Summary(told["source"])
    ended.end(error)
    told.update(state=ended.state, exit_code=ended.exit_code, error=ended.error)
    told["training_folder"] = training_folder(folder)
    told["seconds"] = round(time.monotonic() - known["begun"], 3)
    for each in told["components"]:
        if each["node"] == known["component"] and each["state"] == NOT_REACHED:
            each["state"] = INTERRUPTED if ended.state == INTERRUPTED else FAILED
    with contextlib.suppress(OSError):
        write_json(known["path"], told, indent=2)
    return told if known["prints"] else None
