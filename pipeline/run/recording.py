"""The summary of a run, or of an execution, in its folder of logs: however it ends.

What is known so far is among the temporary files of the run: where it ends without a word, its watcher completes it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.run.summary import FILE, Summary
from tfx_estimator.pipeline.runners.listener import FAILED, INTERRUPTED, NOT_REACHED

if TYPE_CHECKING:  # the watcher needs none of what shows a run
    from tfx_estimator.pipeline.run.view import View

_FILE = "so_far.json"


@contextlib.contextmanager
def recorded(
    results: Summary, view: View, logs: str, prints: bool, collect: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Leaves the summary when the context ends, which says itself when the run has ended well.

    Args:
        results: Of the run, with its name; what was shown and what failed is put into it.
        prints: Whether the summary is printed as well.
        collect: Reads what the components came to before the run failed.
    """
    path = os.path.join(logs, FILE)

    def keep() -> None:
        results.heard(view.runs, view.warnings)
        _keep(results, path, view.current, prints)

    view.changed = keep
    # What a run before this one, of the same process, has noted.
    scratch.note(scratch.TRAINING_FOLDER, "")
    keep()
    try:
        yield
    except BaseException as error:
        # A second Ctrl-C here would leave no summary.
        with signals.ignored():
            results.heard(view.runs, view.warnings)
            results.end(error)
            results.training_folder = _training_folder(scratch.of_this_run())
            if any(run.execution_id for run in results.components):
                _try(collect)
            # A summary that cannot be written must not hide what went wrong.
            with contextlib.suppress(OSError):
                results.write(path)
        raise
    results.write(path)


def _try(collect: Callable[[], None]) -> None:
    try:
        collect()
    except Exception:
        logging.getLogger(__name__).exception("what the components came to cannot be read")


def _keep(summary: Summary, path: str, component: str, prints: bool) -> None:
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


def _training_folder(folder: str) -> Optional[str]:
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
    told["training_folder"] = _training_folder(folder)
    told["seconds"] = round(time.monotonic() - known["begun"], 3)
    for each in told["components"]:
        if each["node"] == known["component"] and each["state"] == NOT_REACHED:
            each["state"] = INTERRUPTED if ended.state == INTERRUPTED else FAILED
    with contextlib.suppress(OSError):
        write_json(known["path"], told, indent=2)
    return told if known["prints"] else None
