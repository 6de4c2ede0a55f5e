"""An experiment's terminal output (a line for each training, then a table) and its result files."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from rich.console import Console

from tfx_estimator.pipeline.base import caller
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.files import make_dated, write_json, write_whole
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.terminal import make_console, quiet, run_context

_WIDTH_OF_A_FILE = 140
# File name -> text, bytes, or a dict to write as JSON.
Files = dict[str, Union[str, bytes, dict[str, Any]]]


@dataclass
class Session:
    """One experiment."""

    folders: PipelineFolders  # of the pipeline whose cache the trainings share
    folder: str  # this experiment's new folder
    log: str
    output: str
    console: Console
    failed: dict[str, TfxEstimatorError] = field(default_factory=dict)  # by the name of the training

    @property
    def failures(self) -> dict[str, str]:
        """Messages of the failures."""
        return {name: str(error) for name, error in self.failed.items()}

    def print_ended(self, what: str, started: float) -> None:
        """Prints a line for a training that has ended."""
        self.console.print(f"  {what} {time.monotonic() - started:7.1f} s")

    def write(self, files: Files, show: Callable[[Console], None]) -> None:
        """Writes the result files, and prints the results."""
        os.makedirs(self.output, exist_ok=True)
        paths = [os.path.join(self.output, name) for name in files]
        for path, content in zip(paths, files.values()):
            if isinstance(content, dict):
                write_json(path, content, indent=2, allow_nan=False)
            else:
                write_whole(path, content)
        caller.tell(**{caller.FOLDER: self.output})
        show(self.console)
        self.console.print()
        for path in paths:
            self.console.print(one_line(path))


@contextlib.contextmanager
def opened(
    folders: PipelineFolders, verb: str, what: str, output: str | None, exclusive: bool = True, terminal_fd: int = 1
) -> Iterator[Session]:
    """Creates an experiment's folder next to the pipeline's runs, with a log of the libraries' output.

    Args:
        output: Folder for the results; None is the new one.
        exclusive: Whether to lock out the pipeline's runs meanwhile.
    """
    with run_context(folders, exclusive):
        folder = make_dated(os.path.join(folders.home, verb))
        with quiet(log := os.path.join(folder, f"{verb}.log"), terminal_fd) as terminal:
            console = make_console(terminal, _WIDTH_OF_A_FILE)
            console.print(f"{what}  →  {one_line(output or folder)}")
            yield Session(folders, folder, log, output or folder, console)


def now() -> str:
    """Returns the current UTC time for an experiment's records."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
