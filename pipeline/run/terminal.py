"""Terminal, signal handling and console of a long-running command."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import IO, Any, Optional

from rich.console import Console
from rich.text import Text

from tfx_estimator.pipeline.base.ending.signals import handled
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.folders import PipelineFolders, only_run

# A pipe whose reader has left, a closed terminal, a descriptor that was never open.
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)


@contextlib.contextmanager
def run_context(folders: PipelineFolders, exclusive: bool = True) -> Iterator[None]:
    """Handles SIGINT and SIGTERM, and OSErrors of a pipeline's folder; locks the folder if `exclusive`."""
    with only_run(folders) if exclusive else contextlib.nullcontext(), handled():
        try:
            yield
        except OSError as error:
            raise PipelineError(
                f"{error.filename or folders.home}: {error.strerror or error}",
                expected="a work folder that can be written",
                todo=f"make room, or name another {folders.option}",
            ) from error


@contextlib.contextmanager
def quiet(log: str, terminal_fd: int = 1) -> Iterator[IO[str]]:
    """Redirects stdout and stderr, with the output of C++ libraries, to a file.

    Yields:
        The terminal, from descriptor 1 or 2. Once its reader has left, writes to it go to the file.
    """
    atexit.register(_hide_teardown)
    _flush()
    out, err = os.dup(1), os.dup(2)
    shown = os.dup(terminal_fd)
    with open(log, "ab", buffering=0) as file, _open_terminal(shown, file.fileno()) as terminal:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield terminal
        finally:
            _flush()
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.close(out)
            os.close(err)


class _Terminal(io.FileIO):
    """The terminal; the log once the terminal's reader has left."""

    def __init__(self, fd: int, log: int) -> None:
        super().__init__(fd, "wb")
        self._log = log

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            os.dup2(self._log, self.fileno())
            return super().write(data)


def _open_terminal(fd: int, log: int) -> IO[str]:
    return io.TextIOWrapper(io.BufferedWriter(_Terminal(fd, log)), encoding="utf-8", line_buffering=os.isatty(fd))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The reader may have left.
        with contextlib.suppress(BrokenPipeError):
            stream.flush()


def _hide_teardown() -> None:
    """Discards the ignored exceptions that TensorFlow prints at interpreter shutdown."""
    _flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def make_console(terminal: IO[str], width_of_a_file: Optional[int] = None, quietly: bool = False) -> Console:
    """Makes a console without markup for the terminal, or for a file of a given width.

    Pass foreign text through `printable` before printing it.
    """
    width = None if terminal.isatty() else width_of_a_file
    return Console(
        file=terminal, highlight=False, soft_wrap=True, width=width, markup=False, emoji=False, quiet=quietly
    )


def title(console: Console, name: str, what: str, where: str) -> None:
    """Prints the first line: pipeline, declaration, and the folder of the results."""
    console.print(Text.assemble((name, "bold"), f"  {one_line(what)}  →  {one_line(where)}"))
