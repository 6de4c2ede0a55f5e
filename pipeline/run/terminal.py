"""The terminal and the signals of a command that works for long."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO

from tfx_estimator.pipeline.errors import PipelineError
from tfx_estimator.pipeline.folders import PipelineFolders, only_run


@contextlib.contextmanager
def in_order(folders: PipelineFolders, alone: bool = True) -> Iterator[None]:
    """Works in a pipeline's folder; SIGTERM ends what runs in order.

    Args:
        folders: Where the pipeline keeps its things.
        alone: Let no other run work there at the same time.

    Raises:
        PipelineError: Another run goes on, or something cannot be written.
    """
    with only_run(folders) if alone else contextlib.nullcontext(), _terminated_as_exit():
        try:
            yield
        except OSError as error:
            raise PipelineError(
                f"{error.filename or folders.home}: {error.strerror or error}",
                expected="a work folder that can be written",
                todo="make room, or name another --workdir",
            ) from error


@contextlib.contextmanager
def quiet(log: str) -> Iterator[IO[str]]:
    """Sends all that libraries print, C++ included, to a file.

    Yields:
        What is left for us: the terminal.
    """
    atexit.register(_hide_teardown)
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = os.dup(1), os.dup(2)
    with open(log, "ab", buffering=0) as file, os.fdopen(os.dup(out), "w", encoding="utf-8") as terminal:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            terminal.flush()
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.close(out)
            os.close(err)


@contextlib.contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """Makes SIGTERM unwind the stack, so that what runs is ended in order."""

    def leave(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _hide_teardown() -> None:
    """TensorFlow prints ignored exceptions while the interpreter shuts down."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
