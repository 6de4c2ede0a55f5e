"""`tfx-estimator run`: a run as a person sees it on the terminal."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import time
from collections.abc import Iterator
from typing import IO, Any, Optional

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline import log
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.render import render
from tfx_estimator.pipeline.files import write_json, write_whole
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.run.rendezvous import Rendezvous
from tfx_estimator.pipeline.run.terminal import in_order, quiet

_PROGRESS_SECONDS = 5.0
_STYLES = {"ran": "green", "cached": "cyan", "resolved": "dim", "failed": "bold red"}


def run_declaration(loaded: Loaded, workdir: str, cluster: Any = None) -> int:
    """Runs a declaration on this machine.

    Args:
        loaded: The validated declaration.
        workdir: Folder of all runs.
        cluster: Addresses of the cluster whose chief this process is; the other tasks wait for its training.

    Returns:
        The exit code: 0 also if the model was not blessed, which is a result and not a failure.

    Raises:
        TfxEstimatorError: The run failed.
    """
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with in_order(folders), contextlib.nullcontext() if cluster is None else Rendezvous(folders, cluster).led():
        logs = _make_logs(loaded, folders)
        with quiet(os.path.join(logs, "pipeline.log")) as terminal:
            _run(loaded, folders, logs, make_console(terminal))
    return 0


def make_console(terminal: IO[str], width_of_a_file: Optional[int] = None) -> Console:
    """Makes a console of what `quiet` leaves for us.

    Args:
        terminal: The terminal, or a file in its place.
        width_of_a_file: In characters, if it is a file; None takes the environment's.
    """
    width = None if terminal.isatty() else width_of_a_file
    return Console(file=terminal, highlight=False, soft_wrap=True, width=width)


def _make_logs(loaded: Loaded, folders: PipelineFolders) -> str:
    """Makes the folder for the logs of this run, with the resolved declaration in it."""
    logs = os.path.join(folders.logs, datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    os.makedirs(logs, exist_ok=True)
    write_whole(os.path.join(logs, "declaration.yaml"), render(loaded.declaration.dict(), loaded.origins))
    return logs


def _run(loaded: Loaded, folders: PipelineFolders, logs: str, console: Console) -> None:
    console.print(f"[bold]{folders.name}[/bold]  {loaded.source}  →  {folders.home}")
    for note in loaded.notes:
        console.print(f"  note: {note}", markup=False)
    view = View(console)
    with view.explaining(os.path.join(logs, "pipeline.log")):
        with view.waiting("starting TensorFlow and TFX"):
            from tfx_estimator.pipeline.run.results import collect
            from tfx_estimator.pipeline.runners.local import LocalRunner, prepare

            pipeline = prepare(loaded, folders)
        LocalRunner(view).run(pipeline)
        view.current = "results"
        results = collect(folders, view.runs)
    write_json(os.path.join(logs, "summary.json"), results.to_dict(), indent=2, allow_nan=False)
    _print_summary(console, results, logs, loaded.declaration.trainer.distribution.train.asynchronous)


class View:
    """Shows how the components go: a line each, and a moving one while one runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Optional[Live] = None
        self._spinner = Spinner("dots")
        self._title = ""
        self._printed = 0.0
        self.current = ""
        self.runs: list[Any] = []
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

    def node_started(self, node: str, index: int, total: int) -> None:
        """Shows the component that runs."""
        self.current = node
        self._title = f"{index}/{total} {node}"
        self._printed = time.monotonic()
        self._show(self._title)

    def node_ended(self, run: Any) -> None:
        """Leaves a line for a component that has ended."""
        self.hide()
        self.runs.append(run)
        style = _STYLES[run.state]
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


def _print_summary(console: Console, results: Any, logs: str, asynchronous: bool) -> None:
    table = Table(title=None, box=None, pad_edge=False)
    for title, justify in (("component", "left"), ("state", "left"), ("time", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for run in results.components:
        style = _STYLES[run.state]
        table.add_row(run.node, f"[{style}]{run.state}[/{style}]", f"{run.seconds:.1f} s")
    console.print()
    console.print(table)
    console.print()
    facts = {
        "data": f"{results.dataset}: " + ", ".join(f"{count:,} {split}" for split, count in results.examples.items())
    }
    if results.training:
        facts["training"] = _training(results.training, asynchronous)
    if results.restarts:
        facts["restarts"] = "; ".join(results.restarts)
    if results.accuracy is not None:
        facts["accuracy"] = f"{results.accuracy:.4f} on {results.evaluated:,} examples, mean loss {results.loss:.4f}"
        for name, values in results.slices.items():
            facts[f"by {name}"] = _by_slice(name, values, results.label_names)
    if results.blessed is not None:
        facts["blessed"] = "yes" if results.blessed else "no: " + "; ".join(results.reasons or ["no threshold was met"])
    pushed = results.pushed or "none"
    gone = results.pushed and not is_address(results.pushed) and not os.path.exists(results.pushed)
    facts["pushed model"] = f"{pushed} (deleted since)" if gone else pushed
    facts["TensorBoard"] = f"tensorboard --logdir {results.model_run}" if results.model_run else "none"
    facts["logs"] = logs
    for title, text in facts.items():
        console.print(f"{title:<13} {text}")


def _training(facts: dict[str, float], asynchronous: bool) -> str:
    """Steps, time and pace, as far as they are known."""
    steps, rate, extra = "", "", facts.get("extra_steps")
    if "last_step" in facts:
        reason = ": asynchronous workers end the step that they are in" if asynchronous else ""
        more = f" ({extra:.0f} more than declared{reason})" if extra else ""
        steps = f"steps {facts['first_step']:.0f} to {facts['last_step']:.0f}{more} in "
    if "examples_per_second" in facts:
        rate = f", {facts['examples_per_second']:,.0f} examples/s"
    return f"{steps}{facts['train_seconds']:.0f} s (process start and export included){rate}"


def _by_slice(name: str, values: dict[str, tuple[float, int]], label_names: tuple[str, ...]) -> str:
    """Accuracies of the slices of one feature, labels by their names."""

    def title(value: str) -> str:
        return label_names[int(value)] if name == LABEL else value

    order = sorted(values, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))
    return ", ".join(f"{title(value)} {values[value][0]:.3f}" for value in order)
