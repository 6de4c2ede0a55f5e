"""The summary of a run, or of an execution, in its folder of logs: however it ends."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator

from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.run import unfinished
from tfx_estimator.pipeline.run.summary import FILE, Summary
from tfx_estimator.pipeline.run.view import View


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
        unfinished.keep(results, path, view.current, prints)

    view.changed = keep
    unfinished.begin()
    keep()
    try:
        yield
    except BaseException as error:
        # A second Ctrl-C here would leave no summary.
        with signals.ignored():
            results.heard(view.runs, view.warnings)
            results.end(error)
            results.training_folder = unfinished.training_folder(scratch.of_this_run())
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
