"""`tfx-estimator run`: a run as a person sees it on the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any, Optional

from rich.console import Console

from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.render import render
from tfx_estimator.pipeline.ending import signals, slate
from tfx_estimator.pipeline.errors import NotBlessedError
from tfx_estimator.pipeline.files import write_whole
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.importing import uncollected
from tfx_estimator.pipeline.run import dry_run, so_far
from tfx_estimator.pipeline.run.printing import make_console, title
from tfx_estimator.pipeline.run.rendezvous import Rendezvous
from tfx_estimator.pipeline.run.reported import reported
from tfx_estimator.pipeline.run.summary import FILE, Summary
from tfx_estimator.pipeline.run.table import print_table
from tfx_estimator.pipeline.run.terminal import in_order, quiet
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.text import one_line


def run_declaration(
    loaded: Loaded,
    workdir: str,
    cluster: Any = None,
    *,
    summary: Optional[Summary] = None,
    require_blessing: bool = False,
    tries: bool = True,
    terminal_fd: int = 1,
    report: bool = True,
) -> int:
    """Runs a declaration on this machine.

    Args:
        loaded: The validated declaration.
        workdir: Folder of all runs.
        cluster: Addresses of the cluster whose chief this process is; the other tasks wait for its training.
        summary: Takes what the run comes to; it is filled even if the run fails.
        require_blessing: Whether a model that is not blessed is a failure.
        tries: Whether the user's code is tried first.
        terminal_fd: As of `quiet`.
        report: Whether to leave a report.

    Returns:
        The exit code: 0.

    Raises:
        TfxEstimatorError: The run failed.
        NotBlessedError: The model was not blessed, and had to be.
    """
    results = summary or Summary(loaded.source)
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with in_order(folders), contextlib.nullcontext() if cluster is None else Rendezvous(folders, cluster).led():
        logs = _make_logs(loaded, folders)
        with quiet(os.path.join(logs, "pipeline.log"), terminal_fd) as terminal:
            view = View(console := make_console(terminal))
            page = reported(results, view, logs) if report else contextlib.nullcontext()
            with page, _recorded(loaded, results, view, folders, logs, prints=terminal_fd != 1):
                _run(loaded, folders, logs, console, view, results, tries)
                if require_blessing and not results.blessed:
                    raise NotBlessedError(
                        f"the model is not blessed: {results.why_not_blessed()}",
                        expected="a blessed model, as of --require-blessing",
                        todo="train a better one; or see evaluator.min_accuracy and evaluator.max_accuracy_drop",
                    )
    return 0


def _make_logs(loaded: Loaded, folders: PipelineFolders) -> str:
    """Makes the folder for the logs of this run, with the resolved declaration in it."""
    logs = folders.make_logs()
    write_whole(os.path.join(logs, "declaration.yaml"), render(loaded.declaration.dict(), loaded.origins))
    return logs


def _run(
    loaded: Loaded,
    folders: PipelineFolders,
    logs: str,
    console: Console,
    view: View,
    results: Summary,
    tries: bool,
) -> None:
    with view.explaining(os.path.join(logs, "pipeline.log")):
        title(console, folders, loaded.source)
        for note in loaded.notes:
            console.print(f"  note: {one_line(note)}")
        for warning in loaded.warnings:
            view.warn(warning)
        with dry_run.beside(loaded, folders, logs, tries) as wait:
            with view.waiting("starting TensorFlow and TFX"), uncollected():
                from tfx_estimator.pipeline.run.results import collect
                from tfx_estimator.pipeline.runners.local import LocalRunner, prepare

            view.current = "dry run"
            with view.waiting("trying your code on made-up examples"):
                tried = wait()
            view.current = ""
        if tried:
            console.print(f"  tried    {'your code':<18} {tried.seconds:7.1f} s")
        with view.waiting("preparing the data and the pipeline"):
            pipeline = prepare(loaded, folders)
        LocalRunner(view, folders).run(pipeline)
        view.current = "results"
        slate.at("while reading the results")
        results.heard(view.runs, view.warnings)
        collect(results, folders)
    results.end()
    print_table(console, results, logs, loaded.declaration.trainer.distribution.train.asynchronous)


@contextlib.contextmanager
def _recorded(
    loaded: Loaded, results: Summary, view: View, folders: PipelineFolders, logs: str, prints: bool
) -> Iterator[None]:
    """Leaves the summary of a run in its folder of logs, however the run ends."""
    path = os.path.join(logs, FILE)

    def keep() -> None:
        results.heard(view.runs, view.warnings)
        so_far.keep(results, path, view.current, prints)

    results.name, results.notes, view.changed = folders.name, loaded.notes, keep
    keep()
    try:
        yield
    except BaseException as error:
        with _undisturbed():
            results.heard(view.runs, view.warnings)
            results.end(error)
            _collect_what_there_is(results, folders)
            # What went wrong matters more than that it cannot be written.
            with contextlib.suppress(OSError):
                results.write(path)
        raise
    results.write(path)


def _collect_what_there_is(results: Summary, folders: PipelineFolders) -> None:
    if any(run.execution_id for run in results.components):
        from tfx_estimator.pipeline.run.results import collect

        try:
            collect(results, folders)
        except Exception:
            logging.getLogger(__name__).exception("what the components came to cannot be read")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Lets no signal but SIGKILL end what is done in a moment."""
    before = [signal.signal(number, signal.SIG_IGN) for number in signals.NUMBERS]
    try:
        yield
    finally:
        for number, handler in zip(signals.NUMBERS, before):
            signal.signal(number, handler)
