"""Shows the progress of a run's components on the terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tfx_estimator.pipeline.base import caller, log
from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import SignalledError, received
from tfx_estimator.pipeline.base.errors import StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.text import duration, one_line
from tfx_estimator.pipeline.report.source import SUMMARY
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.summary import Summary, Warned
from tfx_estimator.pipeline.runners.listener import RAN, NodeRun

_PROGRESS_SECONDS = 5.0
_STYLES = {"ran": "green", "cached": "cyan", "resolved": "dim", "failed": "bold red", "interrupted": "bold red"}


class View:
    """Shows a line for each component that has ended, a progress line, and warnings that are not among the notes."""

    def __init__(self, console: Console, notes: Sequence[str] = ()) -> None:
        # Called after each change of components or warnings.
        self.changed: Callable[[], None] = lambda: None
        # Returns why a component ran.
        self.why: Callable[[NodeRun], str] = lambda _: ""
        self._console = console
        self._live: Optional[Live] = None
        self._progress_line = _ProgressLine()
        self._title = ""
        self._printed = self._started = time.monotonic()
        self.current = ""
        self.warnings: list[Warned] = []
        self._runs: dict[str, NodeRun] = {}
        handler = _ProgressHandler(self)
        handler.addFilter(lambda record: record.getMessage() not in notes)
        self._logger = logging.getLogger(log.ROOT)
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(handler)
        self._handler = handler

    @contextlib.contextmanager
    def explaining(self, log: str) -> Iterator[None]:
        """Converts exceptions to the project's errors; closes the view when the context exits."""
        try:
            yield
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).exception("it failed")  # with the stack, into the log
            if (number := received()) and not isinstance(error, StoppedError):
                # The signal is the cause: Beam wraps any exception of its workers in its own.
                raise SignalledError(number) from error
            raise explain(error, self.current, log) from error
        finally:
            self.close()

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows a progress line while the context lasts."""
        shared_status.at(f"while {text}")
        self._show(text)
        yield
        self.hide()

    @property
    def runs(self) -> list[NodeRun]:
        """The components' states, in order."""
        return list(self._runs.values())

    def run_started(self, nodes: Sequence[NodeRun]) -> None:
        """Sets the components that are to run."""
        self._runs = {run.node: run for run in nodes}

    def node_started(self, node: str, index: int, total: int) -> None:
        """Shows the running component."""
        self.current = node
        self._title = f"{index}/{total} {node}"
        self._printed = self._started = time.monotonic()
        self._show(self._title)
        self.changed()

    def node_ended(self, run: NodeRun) -> None:
        """Prints a line for a component that has ended."""
        run = dataclasses.replace(run, reason=self._reason(run))
        self.take(run)
        # `interrupted` is wider than the column.
        word = "stopped" if run.state == "interrupted" else run.state
        state = Text(f"{word:<8}", _STYLES[run.state])
        reason = Text(f"  {run.reason}" if run.reason else "", "dim")
        self._console.print(Text.assemble("  ", state, f" {run.node:<18} {run.seconds:7.1f} s", reason))

    def _reason(self, run: NodeRun) -> str:
        try:
            return self.why(run) if run.state == RAN else ""
        except Exception:  # must not end a run
            logging.getLogger(__name__).exception("the reason why it ran cannot be determined")
            return ""

    def take(self, run: NodeRun) -> None:
        """Sets the state of a component that has ended."""
        self.hide()
        self._runs[run.node] = run
        self.changed()

    def progress(self, text: str) -> None:
        """Shows progress inside a component."""
        caller.tell(**{caller.MOVING: f"{self._title}: {one_line(text)}"})
        if self._live:
            self._progress_line.set_text(f"{self._title}: {text}")
        elif time.monotonic() - self._printed >= _PROGRESS_SECONDS:
            self._printed = time.monotonic()
            elapsed = duration(self._printed - self._started)
            self._console.print(f"          {self.current}: {one_line(text)}, {elapsed} elapsed")

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(one_line(text))

    def warn(self, text: str) -> None:
        """Prints a warning, also on a quiet console."""
        self.warnings.append(warned := Warned(self.current, text))
        self.changed()
        quiet, self._console.quiet = self._console.quiet, False
        self._console.print(Text.assemble("  ", Text("warning", "yellow"), f"  {one_line(str(warned))}"))
        self._console.quiet = quiet

    def finish(self, results: Summary, logs: str, part: str, doing: str, failed: str, work: Callable[[], str]) -> None:
        """Does work after a run, and prints the line that it returns; an error becomes a warning of the run."""
        try:
            with self.waiting(doing):
                line = work()
        except Exception as error:
            logging.getLogger(__name__).exception(failed)
            self.hide()
            self.current = part
            what = error.what if isinstance(error, TfxEstimatorError) else f"{type(error).__name__}: {error}"
            self.warn(text := f"{failed}: {what}")
            results.warnings.append(Warned(part, text))
            with contextlib.suppress(OSError):
                results.write(os.path.join(logs, SUMMARY))
        else:
            self.note(line)

    def close(self) -> None:
        """Removes the progress line and the log handler."""
        self.hide()
        self._logger.removeHandler(self._handler)

    def _show(self, text: str) -> None:
        caller.tell(**{caller.MOVING: one_line(text)})
        if self._console.is_terminal:
            self._progress_line = _ProgressLine(text)
            # rich must not redirect stdout and stderr: the output of libraries belongs in the log.
            self._live = Live(
                self._progress_line, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()

    def hide(self) -> None:
        """Removes the progress line."""
        if self._live:
            self._live.stop()
            self._live = None


class _ProgressLine:
    """A spinner with a text and the elapsed time."""

    def __init__(self, text: str = "") -> None:
        self._spinner = Spinner("dots")
        self._started = time.monotonic()
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Replaces the text; the elapsed time continues."""
        self._text = one_line(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = duration(int(time.monotonic() - self._started)) if time.monotonic() - self._started >= 1 else ""
        self._spinner.update(text=Text(f"{self._text}, {elapsed} elapsed" if elapsed else self._text))
        yield self._spinner


class _ProgressHandler(logging.Handler):
    """Shows the project's own log records in the view."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.INFO)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a record: warnings and those with `stays` as a line, others as progress."""
        if record.levelno >= logging.WARNING:
            self._view.warn(record.getMessage())
        elif getattr(record, "stays", False):
            self._view.note(record.getMessage())
        else:
            self._view.progress(record.getMessage())
