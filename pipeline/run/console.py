"""`tfx-estimator run`: runs a declaration, with its progress and results on the terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Optional

from rich.console import Console

from tfx_estimator.pipeline.base import caller
from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.table import check_kept
from tfx_estimator.pipeline.config.yaml_text import render
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.source import CARD, DECLARATION, REPORT
from tfx_estimator.pipeline.run import dry_run
from tfx_estimator.pipeline.run.rendezvous import meeting_of
from tfx_estimator.pipeline.run.summary import INTERRUPTED, Summary, recorded
from tfx_estimator.pipeline.run.table import COLUMN, print_table
from tfx_estimator.pipeline.run.terminal import make_console, quiet, run_context, title
from tfx_estimator.pipeline.run.tracking import check_client, tracked
from tfx_estimator.pipeline.run.view import View


def run_declaration(
    loaded: Loaded,
    workdir: str,
    cluster: Any = None,
    *,
    summary: Optional[Summary] = None,
    require_blessing: bool = False,
    dry_runs: bool = True,
    terminal_fd: int = 1,
    report: bool = True,
    quietly: bool = False,
) -> int:
    """Runs a declaration on this machine; returns the exit code, 0.

    Args:
        cluster: Addresses of the cluster whose chief this process is; the other tasks wait for its training.
        summary: Is filled with the results, even if the run fails.
        require_blessing: Whether a model that is not blessed is a failure.
        dry_runs: Whether to try the user's code first.
        terminal_fd: See `quiet`.
        quietly: Whether to show only warnings.
    """
    check_client(loaded.declaration)
    results = summary or Summary(loaded.source)
    folders = PipelineFolders(workdir, loaded.declaration.name)
    meeting = meeting_of(folders, cluster, loaded.declaration.to_json())
    with run_context(folders), contextlib.nullcontext() if cluster is None else meeting.leading():
        logs = _make_logs(loaded, folders)
        caller.tell(**{caller.FOLDER: logs})
        with quiet(os.path.join(logs, "pipeline.log"), terminal_fd) as terminal:
            view = View(console := make_console(terminal, quietly=quietly), loaded.notes)
            page = reported(results, view, logs) if report else contextlib.nullcontext()
            results.name, results.notes = folders.name, loaded.notes
            # Of images, their Examples know it.
            if (data := loaded.declaration.data).is_table:
                table, name = data.table(), os.path.basename(data.table_path)
                results.dataset, results.days = table.days or name, len(table.spans)
            note = tracked(loaded.declaration.tracking.mlflow, results, view, logs)
            with note, page, recorded(results, view, logs, terminal_fd != 1, lambda: _collect(results, folders)):
                title(console, folders.name, loaded.source, folders.home)
                with view.explaining(os.path.join(logs, "pipeline.log")):
                    _run(loaded, folders, logs, console, view, dry_runs)
                    view.current = "results"
                    shared_status.at("while reading the results")
                    results.update(view.runs, view.warnings)
                    _collect(results, folders)
                results.end()
                print_table(console, results, logs, loaded.declaration.trainer.distribution.train.asynchronous)
                if require_blessing:
                    results.check_blessed()
    return 0


def _make_logs(loaded: Loaded, folders: PipelineFolders) -> str:
    """Creates this run's log folder, with the resolved declaration in it."""
    logs = folders.make_logs()
    write_whole(os.path.join(logs, DECLARATION), render(loaded.declaration.dict(), loaded.origins))
    return logs


def _run(loaded: Loaded, folders: PipelineFolders, logs: str, console: Console, view: View, dry_runs: bool) -> None:
    for note in loaded.notes:
        console.print(f"  note: {one_line(note)}")
    for warning in loaded.warnings:
        view.warn(warning)
    if not folders.is_stored:
        check_kept(loaded.declaration.data, folders.schema)
    with dry_run.in_background(loaded, folders, logs, dry_runs) as wait:
        with view.waiting("starting TensorFlow and TFX"), uncollected():
            from tfx_estimator.pipeline.run.why import Why
            from tfx_estimator.pipeline.runners.local import LocalRunner, check_data, prepare

        with view.waiting("looking for the data"):
            check_data(loaded)
        view.current = "dry run"
        with view.waiting("trying your code on made-up examples"):
            tried = wait()
        view.current = ""
    if tried:
        console.print(f"  tried    {'your code':<18} {tried.seconds:7.1f} s")
    with view.waiting("preparing the data and the pipeline"):
        pipeline = prepare(loaded, folders)
    view.why = Why(folders, loaded)
    LocalRunner(view, folders, loaded.rerun).run(pipeline)


def _collect(results: Summary, folders: PipelineFolders) -> None:
    # Imported late, because it imports TFX.
    from tfx_estimator.pipeline.run.results import collect

    collect(results, folders)


@contextlib.contextmanager
def reported(results: Summary, view: View, logs: str) -> Iterator[None]:
    """Writes the report, and a model's card, when the context exits, unless the run was interrupted."""
    try:
        yield
    finally:
        if results.state != INTERRUPTED:
            texts = "making the report", "it could not be made"
            view.finish(results, logs, "report", *texts, lambda: _report(logs, os.path.join(logs, REPORT)))
            if results.model:
                texts = "writing the model card", "it could not be written"
                view.finish(results, logs, "model card", *texts, lambda: _card(logs, os.path.join(logs, CARD)))


def _report(logs: str, path: str) -> str:
    from tfx_estimator.pipeline.report.report import write_report
    from tfx_estimator.pipeline.report.source import read_run

    write_report(read_run(logs), path)
    return f"{'report':<{COLUMN}} {path}"


def _card(logs: str, path: str) -> str:
    from tfx_estimator.pipeline.report.model_card import write_card
    from tfx_estimator.pipeline.report.source import read_run

    write_card(read_run(logs), path)
    return f"{'model card':<{COLUMN}} {path}"
