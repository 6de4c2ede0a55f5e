"""What verbs print, and the files that they write for the user. Printing needs the standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.base.writing import printing, writing

if TYPE_CHECKING:
    from tfx_estimator.pipeline.run.summary import Summary


def say(text: str, *, to_stderr: bool = False) -> None:
    """Prints lines of text, without what a terminal would obey.

    Args:
        text: The lines; foreign text that is meant to be one of them has to be, by `one_line`.
        to_stderr: Where to; else to stdout.

    Raises:
        TfxEstimatorError: It cannot be written.
        BrokenPipeError: Nobody reads it.
    """
    with printing("stderr" if to_stderr else "stdout"):
        print(printable(text), file=sys.stderr if to_stderr else sys.stdout, flush=True)


@contextlib.contextmanager
def summarised(summary: Summary, prints: bool) -> Iterator[None]:
    """Completes the summary when the context ends, however it does.

    Args:
        summary: Of what is done in the context.
        prints: Whether to print it, as JSON.
    """
    try:
        yield
        if not summary.seconds:  # a task that trained with its chief
            summary.end()
    except BaseException as error:
        summary.end(error)
        if prints:
            # An output that cannot be written must not hide how the command ended.
            with contextlib.suppress(BrokenPipeError, TfxEstimatorError):
                _print_summary(summary)
        raise
    if prints:
        with contextlib.suppress(BrokenPipeError):
            _print_summary(summary)


def _print_summary(summary: Summary) -> None:
    say(json.dumps(summary.to_dict(), indent=2, allow_nan=False))


def write_file(name: str, text: str, *, force: bool) -> None:
    """Writes a file, whole or not at all.

    Args:
        name: The file.
        text: What to write, as UTF-8.
        force: Whether it may replace a file.

    Raises:
        DeclarationError: The name cannot be used.
        TfxEstimatorError: The file cannot be written.
    """
    file = check_file(name, force=force)
    with writing(name):
        write_whole(file, text, named=True)


def check_file(name: str, *, force: bool) -> Path:
    """Checks that a file can be named so. Creates nothing.

    Args:
        name: The file.
        force: Whether it may replace a regular file; of a link, what it leads to.

    Returns:
        Its path.

    Raises:
        DeclarationError: The name cannot be used.
    """
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(name, "FILE")
    file = Path(os.path.expanduser(name))
    name = one_line(name)
    if not name or "\0" in str(file):
        raise DeclarationError(f"{str(file)!r} is no file's name", expected="a file's name", todo="name one")
    if os.path.isdir(file):
        raise DeclarationError(f"{name} is a folder", expected="a file's name", todo=f"name a file in it: {name}/...")
    if not os.path.isdir(file.parent):
        parent = one_line(str(file.parent))
        todo = f"create it: mkdir -p {parent}"
        raise DeclarationError(f"there is no folder {parent}", expected="a folder that exists", todo=todo)
    if os.path.lexists(real := os.path.realpath(file)) and not os.path.isfile(real):
        todo = "name another: no device, pipe or socket is replaced"
        raise DeclarationError(f"{name} is there, and is no regular file", expected="a file's name", todo=todo)
    # A link to nowhere is somebody's too.
    if os.path.lexists(file) and not force:
        todo = "choose another name, or replace it with --force"
        raise DeclarationError(f"{name} exists", expected="a file's name that is free", todo=todo)
    return file
