"""`tfx-estimator execute`: executes a compiled pipeline, with its progress and results on the terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.rehearsal.execution import Execution, copy_modules, rebased
from tfx_estimator.pipeline.platforms.rehearsal.job import read_job
from tfx_estimator.pipeline.report.artifacts import outputs_from_json
from tfx_estimator.pipeline.run.summary import Summary, recorded
from tfx_estimator.pipeline.run.table import print_table
from tfx_estimator.pipeline.run.terminal import make_console, quiet, run_context, title
from tfx_estimator.pipeline.run.view import View


def execute_file(
    path: str,
    root: str,
    given: Mapping[str, str],
    results: Summary,
    *,
    caches: bool = True,
    require_blessing: bool = False,
    terminal_fd: int = 1,
) -> int:
    """Executes a compiled pipeline on this machine; returns the exit code, 0.

    Args:
        root: Folder of all executions, local or in a bucket.
        given: Values of the pipeline's parameters.
        results: Is filled with the results, even if the execution fails.
        caches: Whether to use the cache.
        require_blessing: Whether a model that is not blessed is a failure.
        terminal_fd: See `quiet`.
    """
    job = read_job(path)
    folders = PipelineFolders(root, job.name, "--root")
    results.name = job.name
    with run_context(folders), scratch.used():
        logs = folders.make_logs()
        with quiet(os.path.join(logs, "pipeline.log"), terminal_fd) as terminal:
            view = View(console := make_console(terminal))
            log = os.path.join(logs, "pipeline.log")
            with recorded(results, view, logs, terminal_fd != 1):
                with view.explaining(log):
                    title(console, folders.name, path, folders.home)
                    with _locked(folders):
                        parameters = rebased(job, folders, given)
                        copy_modules(job, os.path.dirname(os.path.abspath(path)), folders)
                        outputs = Execution(job, parameters, folders, logs, caches).run(view)
                        view.current = "results"
                        results.update(view.runs, view.warnings)
                        with view.waiting("reading the results"):
                            from tfx_estimator.pipeline.run.results import add_outputs

                            add_outputs(results, outputs_from_json(outputs))
                results.end()
                print_table(console, results, logs, asynchronous=False)
                if require_blessing:
                    results.check_blessed()
    return 0


@contextlib.contextmanager
def _locked(folders: PipelineFolders) -> Iterator[None]:
    """Keeps other machines out of a folder in a bucket."""
    if not folders.is_stored:
        yield
        return
    from tfx_estimator.pipeline.runners.buckets import check_buckets, only_machine

    check_buckets([folders.workdir])
    with only_machine(folders):
        yield
