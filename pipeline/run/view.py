"""A run's components as a person sees them go: a line each, and a moving one."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import IO, Optional

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from tfx_estimator.pipeline import log
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.summary import Warned
from tfx_estimator.pipeline.runners.listener import NodeRun

_PROGRESS_SECONDS = 5.0
STYLES = {"ran": "green", "cached": "cyan", "resolved": "dim", "failed": "bold red", "not reached": "dim"}


def make_console(terminal: IO[str], width_of_a_file: Optional[int] = None) -> Console:
    """Makes a console of what `quiet` leaves for us.

    Args:
        terminal: The terminal, or a file in its place.
        width_of_a_file: In characters, if it is a file; None takes the environment's.
    """
    width = None if terminal.isatty() else width_of_a_file
    return Console(file=terminal, highlight=False, soft_wrap=True, width=width)


class View:
    """Shows how the components go: a line each, and a moving one while one runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Optional[Live] = None
        self._spinner = Spinner("dots")
        self._title = ""
        self._printed = 0.0
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
        """Ends the view with the context, and says in the project's words what went wrong in it.

        Args:
            log: Where the whole of it goes.

        Raises:
            TfxEstimatorError: Something went wrong.
        """
        try:
            yield
        except Exception as error:
            logging.getLogger(__name__).exception("it failed")  # all of it, into the log
            raise explain(error, self.current, log) from error
        finally:
            self.close()

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows that something takes its time."""
        self._show(text)
        yield
        self.hide()

    @property
    def runs(self) -> list[NodeRun]:
        """How each component went so far, in their order."""
        return list(self._runs.values())

    def run_started(self, nodes: Sequence[str]) -> None:
        """Takes note of what is to run."""
        self._runs = {node: NodeRun(node, "not reached", 0.0, None) for node in nodes}

    def node_started(self, node: str, index: int, total: int) -> None:
        """Shows the component that runs."""
        self.current = node
        self._title = f"{index}/{total} {node}"
        self._printed = time.monotonic()
        self._show(self._title)

    def node_ended(self, run: NodeRun) -> None:
        """Leaves a line for a component that has ended."""
        self.hide()
        self._runs[run.node] = run
        style = STYLES[run.state]
        self._console.print(f"  [{style}]{run.state:<8}[/{style}] {run.node:<18} {run.seconds:7.1f} s")

    def progress(self, text: str) -> None:
        """Shows progress inside a component."""
        if self._live:
            self._spinner.update(text=f"{self._title}: {text}")
        elif time.monotonic() - self._printed >= _PROGRESS_SECONDS:
            self._printed = time.monotonic()
            self._console.print(f"          {self.current}: {text}")

    def warn(self, text: str) -> None:
        """Leaves a line that says what went wrong."""
        self.warnings.append(Warned(self.current, text))
        self._console.print(f"  [yellow]warning[/yellow]  {self.current}: ", end="")
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Ends the view."""
        self.hide()
        self._logger.removeHandler(self._handler)

    def _show(self, text: str) -> None:
        if self._console.is_terminal:
            self._spinner.update(text=text)
            # Not redirecting: what libraries print belongs into the log.
            self._live = Live(
                self._spinner, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()

    def hide(self) -> None:
        """Removes the moving line."""
        if self._live:
            self._live.stop()
            self._live = None


class _ProgressHandler(logging.Handler):
    """Hands the project's own log records to the view."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.INFO)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one record; a warning stays."""
        if record.levelno >= logging.WARNING:
            self._view.warn(record.getMessage())
        else:
            self._view.progress(record.getMessage())
