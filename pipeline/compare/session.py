"""`tfx-estimator compare`: trains, asks and compares, as a person sees it on the terminal."""

from __future__ import annotations

import datetime
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from rich.console import Console

from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import received
from tfx_estimator.pipeline.base.errors import DeclarationError, StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import make_dated, write_json, write_whole
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.compare.answers import Answers, Model, answer
from tfx_estimator.pipeline.compare.candidates import Candidate
from tfx_estimator.pipeline.compare.measures import declared_metrics
from tfx_estimator.pipeline.compare.plan import HTML_FILE, JSON_FILE
from tfx_estimator.pipeline.compare.results import Comparison
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import need
from tfx_estimator.pipeline.report.missing import LeftOutError
from tfx_estimator.pipeline.report.report import read_run_outputs
from tfx_estimator.pipeline.report.versions import read_versions
from tfx_estimator.pipeline.run import dry_run
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.printing import make_console
from tfx_estimator.pipeline.run.terminal import in_order, quiet
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.listener import NodeRun

_CACHED = "cached"
_LOG = "compare.log"
_SPLIT = "eval"
_WIDTH_OF_A_FILE = 140
# One alone cannot be compared.
_LEAST = 2


def compare(
    candidates: Sequence[Candidate], workdir: str, output: Optional[str] = None, terminal_fd: int = 1
) -> tuple[Comparison, Optional[TfxEstimatorError]]:
    """Compares candidates.

    Args:
        candidates: At least two, the first being the one that the others are compared with.
        workdir: Folder of all runs, where declarations are trained.
        output: Folder for the results; None is a new one beside the first candidate's runs.
        terminal_fd: As of `quiet`.

    Returns:
        What was found; and why a candidate that was left out could not be trained, the first of them.

    Raises:
        DeclarationError: A finished run has no model, or others' examples.
        TfxEstimatorError: The first candidate could not be trained, or fewer than two could.
        StoppedError: A signal ended a training.
        SignalledError: The same outside of a training.
    """
    trained = next((each.loaded for each in candidates if each.loaded), None)
    # All declarations are trained in the pipeline of the first one, so that its cache holds their examples.
    home = PipelineFolders(workdir, trained.declaration.name).home if trained else candidates[0].home
    folders = PipelineFolders(*os.path.split(home))
    with in_order(folders, alone=trained is not None):
        folder = make_dated(os.path.join(home, "compare"))
        with quiet(os.path.join(folder, _LOG), terminal_fd) as terminal:
            console = make_console(terminal, _WIDTH_OF_A_FILE)
            shown = " · ".join(one_line(each.name) for each in candidates)
            console.print(f"{shown}  →  {one_line(output or folder)}")
            return _Session(candidates, folders, folder, console).run(output or folder)


class _Session:
    """One comparison."""

    def __init__(
        self, candidates: Sequence[Candidate], folders: PipelineFolders, folder: str, console: Console
    ) -> None:
        self._candidates = candidates
        self._folders = folders
        self._folder = folder
        self._log = os.path.join(folder, _LOG)
        self._console = console
        self._view = _CompareView(console)
        self._failed: dict[str, TfxEstimatorError] = {}

    def run(self, output: str) -> tuple[Comparison, Optional[TfxEstimatorError]]:
        with self._view.explaining(self._log):
            with self._view.waiting("starting TensorFlow and TFX"):
                from tfx_estimator.pipeline.compare.judge import judge

            # Reads finished runs first: an error in one of them should show before others train for minutes.
            finished = {each.name: _find(each) for each in self._candidates if each.run}
            for candidate in self._candidates:
                if candidate.loaded:
                    self._do_or_note(candidate, self._try)
            answered: list[tuple[Model, Answers]] = []
            for candidate in self._candidates:
                if candidate.name not in self._failed:
                    self._do_or_note(candidate, lambda each: answered.append(self._answers_of(each, finished)))
            if len(answered) < _LEAST:
                raise self._failure(next(iter(self._failed)))
            self._view.current = "comparing"
            with self._view.waiting("comparing"):
                comparison, page = judge(answered, {name: str(error) for name, error in self._failed.items()}, _facts())
            shared_status.at("while writing the results")
            self._write(comparison, page, output)
        return comparison, self._failure(next(iter(self._failed))) if self._failed else None

    def _do_or_note(self, candidate: Candidate, work: Callable[[Candidate], None]) -> None:
        """Works, and notes that a candidate failed; nothing can be compared without the first."""
        self._view.current = ""
        try:
            work(candidate)
        except Exception as error:
            told = explain(error, self._view.current, self._log)
            if isinstance(told, StoppedError) or received():
                raise
            self._failed[candidate.name] = told
            if candidate is self._candidates[0]:
                raise self._failure(candidate.name) from error
            logging.getLogger(__name__).exception("a candidate failed")
            self._view.current = candidate.name
            self._view.warn(f"failed: {told.what.splitlines()[0]}")

    def _failure(self, name: str) -> TfxEstimatorError:
        """What went wrong, and with which candidate."""
        error = self._failed[name]
        error.what = f"{name}: {error.what}"
        return error

    def _try(self, candidate: Candidate) -> None:
        """Tries the user's code."""
        assert candidate.loaded
        logs = os.path.join(self._folder, "tried", str(self._candidates.index(candidate) + 1))
        waiting = self._view.waiting(f"trying the code of {candidate.name} on made-up examples")
        with dry_run.beside(candidate.loaded, self._folders, logs) as wait, waiting:
            wait()

    def _answers_of(self, candidate: Candidate, finished: Mapping[str, Model]) -> tuple[Model, Answers]:
        model = finished.get(candidate.name) or self._train(candidate)
        self._view.current = "predicting"
        with self._view.waiting(f"{candidate.name}: predicting the evaluation examples"):
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="answers-", dir=self._folder) as folder:
                answers = answer(model, folder, self._log, declared_metrics(self._candidates))
        self._print_time("predicted", candidate.name, time.monotonic() - started)
        return model, answers

    def _train(self, candidate: Candidate) -> Model:
        from tfx_estimator.pipeline.compare.training import TRAINER, train

        assert candidate.loaded
        started = time.monotonic()
        outputs = train(candidate.loaded, self._folders, self._view)
        cached = any(run.node == TRAINER and run.state == _CACHED for run in self._view.runs)
        self._print_time(_CACHED if cached else "trained", candidate.name, time.monotonic() - started)
        return Model(candidate, outputs, candidate.loaded.declaration.data.splits.evaluated, cached)

    def _print_time(self, what: str, name: str, seconds: float) -> None:
        self._view.hide()
        self._console.print(f"  {what:<9} {name:<40} {seconds:7.1f} s")

    def _write(self, comparison: Comparison, page: str, output: str) -> None:
        from tfx_estimator.pipeline.compare.table import show

        os.makedirs(output, exist_ok=True)
        paths = {name: os.path.join(output, name) for name in (JSON_FILE, HTML_FILE)}
        write_json(paths[JSON_FILE], comparison.to_dict(), indent=2, allow_nan=False)
        write_whole(paths[HTML_FILE], page)
        show(comparison, self._console)
        self._console.print()
        for path in paths.values():
            self._console.print(one_line(path))


class _CompareView(View):
    """Shows how the trainings go; what comes from the cache needs no line for each candidate."""

    def node_ended(self, run: NodeRun) -> None:
        """Leaves a line for what was done."""
        if run.state == _CACHED:
            self.take(run)
        else:
            super().node_ended(run)


def _find(candidate: Candidate) -> Model:
    """Finds what a finished run left.

    Raises:
        DeclarationError: It has no model, or the examples are gone.
    """
    run = candidate.run
    assert run
    try:
        outputs = read_run_outputs(run)
        for node, name in (("Trainer", "model"), ("Trainer", "model_run"), ("TfdsExampleGen", "examples")):
            need(outputs, node, name)
    except LeftOutError as reason:
        raise DeclarationError(
            f"{one_line(candidate.source)}: {reason}",
            expected="a finished run, with its model and its examples",
            todo="name another run, or its declaration, which is trained then",
        ) from reason
    return Model(candidate, outputs, run.summary.get("evaluated_split") or _SPLIT, cached=True)


def _facts() -> dict[str, Any]:
    """When and where."""
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": read_versions(),
    }
