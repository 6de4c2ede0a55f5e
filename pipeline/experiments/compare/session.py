"""`tfx-estimator compare`: trains, predicts and compares, with the progress on the terminal."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import received
from tfx_estimator.pipeline.base.errors import DeclarationError, StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.experiments.compare.answers import Answers, Model, answer, declared_metrics
from tfx_estimator.pipeline.experiments.compare.candidates import HTML_FILE, JSON_FILE, Candidate
from tfx_estimator.pipeline.experiments.compare.results import Comparison
from tfx_estimator.pipeline.experiments.session import Files, Session, now, opened
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import need, need_examples
from tfx_estimator.pipeline.report.page import LeftOutError
from tfx_estimator.pipeline.report.report import read_run_outputs
from tfx_estimator.pipeline.report.source import read_versions
from tfx_estimator.pipeline.run import dry_run
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.listener import NodeRun

_CACHED = "cached"
_SPLIT = "eval"
_LEAST = 2


def compare(
    candidates: Sequence[Candidate], workdir: str, output: Optional[str] = None, terminal_fd: int = 1
) -> tuple[Comparison, Optional[TfxEstimatorError]]:
    """Compares candidates with the first of them, whose failure ends the comparison, as a signal does.

    Returns:
        The comparison, and the error of the first candidate that was left out, if any.
    """
    trained = next((each.loaded for each in candidates if each.loaded), None)
    # All declarations are trained in the pipeline of the first one, so that its cache holds their examples.
    home = PipelineFolders(workdir, trained.declaration.name).home if trained else candidates[0].home
    folders = PipelineFolders(*os.path.split(home))
    shown = " · ".join(dict.fromkeys(one_line(each.name) for each in candidates))
    with opened(folders, "compare", shown, output, trained is not None, terminal_fd) as session:
        return _Compare(candidates, session).run()


class _Compare:
    """One comparison."""

    def __init__(self, candidates: Sequence[Candidate], session: Session) -> None:
        self._candidates = candidates
        self._session = session
        self._failed = session.failed
        self._view = _CompareView(session.console)

    def run(self) -> tuple[Comparison, Optional[TfxEstimatorError]]:
        with self._view.explaining(self._session.log):
            with self._view.waiting("starting TensorFlow and TFX"):
                from tfx_estimator.pipeline.experiments.compare.judge import judge
                from tfx_estimator.pipeline.experiments.compare.page import show

            # Reads finished runs first, to find errors before others train for minutes.
            finished = {each.name: _find(each) for each in self._candidates if each.run}
            tried: set[str] = set()
            for candidate in self._candidates:
                # Another seed does not change a dry run's result.
                if candidate.loaded and candidate.name not in tried:
                    self._do_or_note(candidate, self._dry_run)
                    tried.add(candidate.name)
            answered: list[tuple[Model, Answers]] = []
            for candidate in self._candidates:
                if candidate.name not in self._failed:
                    self._do_or_note(candidate, lambda each: answered.append(self._answers_of(each, finished)))
            # A candidate with a failed seed is left out: its other seeds alone would be biased.
            answered = [each for each in answered if each[0].candidate.name not in self._failed]
            if len({model.candidate.name for model, _ in answered}) < _LEAST:
                raise self._failure(next(iter(self._failed)))
            self._view.current = "comparing"
            with self._view.waiting("comparing"):
                facts = {"when": now(), "versions": read_versions()}
                comparison, page = judge(answered, self._session.failures, facts)
            shared_status.at("while writing the results")
            files: Files = {JSON_FILE: comparison.to_dict(), HTML_FILE: page}
            self._session.write(files, lambda console: show(comparison, console))
        return comparison, self._failure(next(iter(self._failed))) if self._failed else None

    def _do_or_note(self, candidate: Candidate, work: Callable[[Candidate], None]) -> None:
        """Calls `work`, and records a candidate's failure; raises that of the first, which all are compared with."""
        self._view.current = ""
        try:
            work(candidate)
        except Exception as error:
            explained = explain(error, self._view.current, self._session.log)
            if isinstance(explained, StoppedError) or received():
                raise
            if candidate.seed is not None:
                explained.what = f"seed {candidate.seed}: {explained.what}"
            self._failed[candidate.name] = explained
            if candidate.name == self._candidates[0].name:
                raise self._failure(candidate.name) from error
            logging.getLogger(__name__).exception("a candidate failed")
            self._view.current = candidate.name
            self._view.warn(f"failed: {explained.what.splitlines()[0]}")

    def _failure(self, name: str) -> TfxEstimatorError:
        """Returns a candidate's error, with its name in the message."""
        error = self._failed[name]
        error.what = f"{name}: {error.what}"
        return error

    def _dry_run(self, candidate: Candidate) -> None:
        assert candidate.loaded
        logs = os.path.join(self._session.folder, "tried", str(self._candidates.index(candidate) + 1))
        waiting = self._view.waiting(f"trying the code of {candidate.name} on made-up examples")
        with dry_run.in_background(candidate.loaded, self._session.folders, logs) as wait, waiting:
            wait()

    def _answers_of(self, candidate: Candidate, finished: Mapping[str, Model]) -> tuple[Model, Answers]:
        model = finished.get(candidate.name) or self._train(candidate)
        self._view.current = "predicting"
        with self._view.waiting(f"{candidate.label}: predicting the evaluation examples"):
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="answers-", dir=self._session.folder) as folder:
                answers = answer(model, folder, self._session.log, declared_metrics(self._candidates))
        self._session.print_ended(f"predicted {candidate.label:<40}", started)
        return model, answers

    def _train(self, candidate: Candidate) -> Model:
        from tfx_estimator.pipeline.experiments.training import TRAINER, train

        assert candidate.loaded
        started = time.monotonic()
        outputs = train(candidate.loaded, self._session.folders, self._view)
        cached = any(run.node == TRAINER and run.state == _CACHED for run in self._view.runs)
        self._view.hide()
        self._session.print_ended(f"{_CACHED if cached else 'trained':<9} {candidate.label:<40}", started)
        return Model(candidate, outputs, candidate.loaded.declaration.data.splits.evaluated, cached)


class _CompareView(View):
    """Shows the progress of the trainings, without lines for cached components."""

    def node_ended(self, run: NodeRun) -> None:
        """Prints a line for a component that ran."""
        if run.state == _CACHED:
            self.take(run)
        else:
            super().node_ended(run)


def _find(candidate: Candidate) -> Model:
    """Finds the artifacts of a finished run."""
    run = candidate.run
    assert run
    try:
        outputs = read_run_outputs(run)
        for name in ("model", "model_run"):
            need(outputs, "Trainer", name)
        need_examples(outputs)
    except LeftOutError as reason:
        raise DeclarationError(
            f"{one_line(candidate.source)}: {reason}",
            expected="a finished run, with its model and its examples",
            todo="name another run, or its declaration, which is then trained",
        ) from reason
    return Model(candidate, outputs, run.summary.get("evaluated_split") or _SPLIT, cached=True)
