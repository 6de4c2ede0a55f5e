"""A run's components as a person sees them go: a line each, and a moving one."""

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
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.summary import FILE, Summary, Warned
from tfx_estimator.pipeline.runners.listener import RAN, NodeRun

_PROGRESS_SECONDS = 5.0
_STYLES = {"ran": "green", "cached": "cyan", "resolved": "dim", "failed": "bold red", "interrupted": "bold red"}


class View:
    """Shows how the components go: a line each, and a moving one while one runs."""

    def __init__(self, console: Console) -> None:
        # Is called when there is more to know.
        self.changed: Callable[[], None] = lambda: None
        # Tells why a component ran.
        self.why: Callable[[NodeRun], str] = lambda _: ""
        self._console = console
        self._live: Optional[Live] = None
        self._moving = _Moving()
        self._title = ""
        self._printed = self._started = time.monotonic()
        self.current = ""
        self.warnings: list[Warned] = []
        self._runs: dict[str, NodeRun] = {}
        handler = _ProgressHandler(self)
        self._logger = logging.getLogger(log.ROOT)
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(handler)
        self._handler = handler

    @contextlib.contextmanager
    def explaining(self, log: str) -> Iterator[None]:
        """Ends the view with the context, and says in the project's words what went wrong in it."""
        try:
            yield
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).exception("it failed")  # all of it, into the log
            if (number := received()) and not isinstance(error, StoppedError):
                # The signal is the cause: Beam turns whatever is raised in its workers into an error of its own.
                raise SignalledError(number) from error
            raise explain(error, self.current, log) from error
        finally:
            self.close()

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows that something takes its time."""
        shared_status.at(f"while {text}")
        self._show(text)
        yield
        self.hide()

    @property
    def runs(self) -> list[NodeRun]:
        """How each component went so far, in their order."""
        return list(self._runs.values())

    def run_started(self, nodes: Sequence[NodeRun]) -> None:
        """Takes note of what is to run."""
        self._runs = {run.node: run for run in nodes}

    def node_started(self, node: str, index: int, total: int) -> None:
        """Shows the component that runs."""
        self.current = node
        self._title = f"{index}/{total} {node}"
        self._printed = self._started = time.monotonic()
        self._show(self._title)
        self.changed()

    def node_ended(self, run: NodeRun) -> None:
        """Leaves a line for a component that has ended."""
        run = dataclasses.replace(run, reason=self._reason(run))
        self.take(run)
        # `interrupted` is wider than the column of states.
        word = "stopped" if run.state == "interrupted" else run.state
        state = Text(f"{word:<8}", _STYLES[run.state])
        reason = Text(f"  {run.reason}" if run.reason else "", "dim")
        self._console.print(Text.assemble("  ", state, f" {run.node:<18} {run.seconds:7.1f} s", reason))

    def _reason(self, run: NodeRun) -> str:
        """A reason that cannot be told must not end a run."""
        try:
            return self.why(run) if run.state == RAN else ""
        except Exception:
            logging.getLogger(__name__).exception("why it ran cannot be told")
            return ""

    def take(self, run: NodeRun) -> None:
        """Takes note of a component that has ended."""
        self.hide()
        self._runs[run.node] = run
        self.changed()

    def progress(self, text: str) -> None:
        """Shows progress inside a component."""
        caller.tell(**{caller.MOVING: f"{self._title}: {one_line(text)}"})
        if self._live:
            self._moving.say(f"{self._title}: {text}")
        elif time.monotonic() - self._printed >= _PROGRESS_SECONDS:
            self._printed = time.monotonic()
            elapsed = duration(self._printed - self._started)
            self._console.print(f"          {self.current}: {one_line(text)}, {elapsed} elapsed")

    def note(self, text: str) -> None:
        """Leaves a line that says something."""
        self._console.print(one_line(text))

    def warn(self, text: str) -> None:
        """Leaves a line that says what went wrong."""
        self.warnings.append(warned := Warned(self.current, text))
        self.changed()
        quiet, self._console.quiet = self._console.quiet, False
        self._console.print(Text.assemble("  ", Text("warning", "yellow"), f"  {one_line(str(warned))}"))
        self._console.quiet = quiet

    def finish(self, results: Summary, logs: str, part: str, doing: str, failed: str, work: Callable[[], str]) -> None:
        """Does what comes after a run, and leaves the line that it returns; its failure is a warning of the run."""
        try:
            with self.waiting(doing):
                line = work()
        except Exception as error:
            logging.getLogger(__name__).exception(failed)
            self.hide()
            self.current = part
            told = error.what if isinstance(error, TfxEstimatorError) else f"{type(error).__name__}: {error}"
            self.warn(text := f"{failed}: {told}")
            results.warnings.append(Warned(part, text))
            with contextlib.suppress(OSError):
                results.write(os.path.join(logs, FILE))
        else:
            self.note(line)

    def close(self) -> None:
        """Ends the view."""
        self.hide()
        self._logger.removeHandler(self._handler)

    def _show(self, text: str) -> None:
        caller.tell(**{caller.MOVING: one_line(text)})
        if self._console.is_terminal:
            self._moving = _Moving(text)
            # rich must not redirect stdout and stderr: what libraries print belongs into the log.
            self._live = Live(
                self._moving, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()

    def hide(self) -> None:
        """Removes the moving line."""
        if self._live:
            self._live.stop()
            self._live = None


class _Moving:
    """What goes on, and for how long already."""

    def __init__(self, text: str = "") -> None:
        self._spinner = Spinner("dots")
        self._started = time.monotonic()
        self.say(text)

    def say(self, text: str) -> None:
        """Shows something else; the time goes on."""
        self._text = one_line(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = duration(int(time.monotonic() - self._started)) if time.monotonic() - self._started >= 1 else ""
        self._spinner.update(text=Text(f"{self._text}, {elapsed} elapsed" if elapsed else self._text))
        yield self._spinner


class _ProgressHandler(logging.Handler):
    """Hands the project's own log records to the view."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.INFO)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one record; a warning stays, and what says so."""
        if record.levelno >= logging.WARNING:
            self._view.warn(record.getMessage())
        elif getattr(record, "stays", False):
            self._view.note(record.getMessage())
        else:
            self._view.progress(record.getMessage())
