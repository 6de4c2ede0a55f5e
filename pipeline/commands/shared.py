"""Arguments, printing and writing files, for several verbs. Imports only the standard library."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import write_whole, writing
from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, OTHERS, resolve

if TYPE_CHECKING:
    from tfx_estimator.pipeline.run.summary import Summary


def add_declaration(
    parser: argparse.ArgumentParser,
    *,
    nargs: str = "+",
    several: bool = False,
    source: str = "a preset's name, or a YAML file; - is standard input",
    overridden: str = "one value",
) -> None:
    """Adds SOURCE and --set.

    Args:
        nargs: argparse's, of SOURCE.
        several: Each SOURCE is a declaration of its own; else later ones override earlier ones.
        source: Help of SOURCE.
        overridden: What --set overrides, for its help.
    """
    how = "; A+B is one declaration, where B overrides A" if several else "; later ones override earlier ones"
    action = "store" if several else _Joined
    parser.add_argument("source", metavar="SOURCE", nargs=nargs, action=action, help=source + how)
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"override {overridden}; VALUE is YAML: --set trainer.train_steps=500; may be given several times",
    )


def add_target(parser: argparse.ArgumentParser, what: str = "the service", **options: Any) -> None:
    """Adds --target, with further options of argparse."""
    parser.add_argument("--target", choices=ALL_TARGETS, type=_to_target, help=what, **options)


def _to_target(word: str) -> str:
    if word.lower() in OTHERS:
        raise DeclarationError(
            f"there is no target {word}",
            expected=f"one of {', '.join(ALL_TARGETS)}",
            todo=f"{OTHERS[word.lower()]}; see docs/other-platforms.md",
        )
    return resolve(word)


class _Joined(argparse.Action):
    """Joins several sources into one; None without any."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        """Stores the joined source."""
        from tfx_estimator.pipeline.config.draft import join_sources

        setattr(namespace, self.dest, join_sources(values) if values else None)


def add_workdir(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --workdir, with `what` as its help."""
    parser.add_argument(
        "--workdir", metavar="DIR", type=os.path.expanduser, default="runs", help=f"{what} (default: %(default)s)"
    )


def say(text: str, *, to_stderr: bool = False) -> None:
    """Prints lines without terminal escapes; foreign text within a line needs `one_line`."""
    print(printable(text), file=sys.stderr if to_stderr else sys.stdout, flush=True)


@contextlib.contextmanager
def summarised(summary: Summary, prints: bool) -> Iterator[None]:
    """Completes the summary at the end of the context, also after an error, and prints it as JSON with `prints`."""
    try:
        yield
        if not summary.seconds:  # a task that trained with its chief
            summary.end()
    except BaseException as error:
        summary.end(error)
        if prints:
            # A failure to print must not hide the error.
            with contextlib.suppress(OSError):
                _print_summary(summary)
        raise
    if prints:
        with contextlib.suppress(BrokenPipeError):
            _print_summary(summary)


def _print_summary(summary: Summary) -> None:
    say(json.dumps(summary.to_dict(), indent=2, allow_nan=False))


def write_file(name: str, text: str, *, force: bool) -> None:
    """Writes a file as UTF-8, atomically; replaces another one only by force."""
    file = check_file(name, force=force)
    with writing(name):
        write_whole(file, text, named=True)


def check_file(name: str, *, force: bool) -> Path:
    """Returns the path of a file that may be written; a regular file, or a link to one, is replaced only by force."""
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(name, "FILE")
    file = Path(os.path.expanduser(name))
    name = one_line(name)
    if not os.path.isdir(file.parent):
        parent = one_line(str(file.parent))
        todo = f"create it: mkdir -p {parent}"
        raise DeclarationError(f"there is no folder {parent}", expected="a folder that exists", todo=todo)
    if os.path.lexists(real := os.path.realpath(file)) and not os.path.isfile(real):
        todo = "choose another name: no device, pipe or socket is replaced"
        raise DeclarationError(f"{name} exists, and is not a regular file", expected="a file's name", todo=todo)
    # A dangling link exists too.
    if os.path.lexists(file) and not force:
        todo = "choose another name, or replace it with --force"
        raise DeclarationError(f"{name} exists", expected="the name of a new file", todo=todo)
    return file
