"""Leaves the report of a run beside its summary."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from tfx_estimator.pipeline.run.summary import FILE, INTERRUPTED, Summary, Warned
from tfx_estimator.pipeline.run.table import COLUMN
from tfx_estimator.pipeline.run.view import View

REPORT = "report.html"


@contextlib.contextmanager
def reported(results: Summary, view: View, logs: str) -> Iterator[None]:
    """Makes the report when the context ends; whoever interrupts a run does not want to wait for it.

    Args:
        results: Of the run; written when the context ends.
        view: Shows what is going on, or that there is no report: that must not fail a run.
        logs: The run's folder of logs.
    """
    try:
        yield
    finally:
        if results.state != INTERRUPTED:
            _leave(results, view, logs)


def _leave(results: Summary, view: View, logs: str) -> None:
    path = os.path.join(logs, REPORT)
    try:
        with view.waiting("making the report"):
            from tfx_estimator.pipeline.report.report import write_report
            from tfx_estimator.pipeline.report.source import read_run

            write_report(read_run(logs), path)
    except Exception as error:
        logging.getLogger(__name__).exception("there is no report")
        view.hide()
        view.current = "report"
        view.warn(text := f"it could not be made: {type(error).__name__}: {error}")
        results.warnings.append(Warned("report", text))
        with contextlib.suppress(OSError):
            results.write(os.path.join(logs, FILE))
    else:
        view.note(f"{'report':<{COLUMN}} {path}")
