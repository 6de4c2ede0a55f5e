"""What several verbs share: arguments, what they print, and the files that they write. Standard library only."""

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
    """Adds SOURCE, `nargs` of them as argparse has it, and --set; the rest is for their help.

    Args:
        several: Is each SOURCE a declaration of its own; else of several the later ones override.
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


def add_target(parser: argparse.ArgumentParser, what: str = "the service", **told: Any) -> None:
    """Adds --target; `told` is argparse's."""
    parser.add_argument("--target", choices=ALL_TARGETS, type=_to_target, help=what, **told)


def _to_target(word: str) -> str:
    if word.lower() in OTHERS:
        raise DeclarationError(
            f"nothing is compiled for {word}",
            expected=f"one of {', '.join(ALL_TARGETS)}",
            todo=f"{OTHERS[word.lower()]}; see docs/other-platforms.md",
        )
    return resolve(word)


class _Joined(argparse.Action):
    """Makes one source of several."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        """Sets it, None where there are none."""
        from tfx_estimator.pipeline.config.draft import join_sources

        setattr(namespace, self.dest, join_sources(values) if values else None)


def add_workdir(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --workdir; `what` is done there."""
    parser.add_argument(
        "--workdir", metavar="DIR", type=os.path.expanduser, default="runs", help=f"{what} (default: %(default)s)"
    )


def say(text: str, *, to_stderr: bool = False) -> None:
    """Prints lines, without what a terminal would obey; foreign text that is to be one of them needs `one_line`."""
    print(printable(text), file=sys.stderr if to_stderr else sys.stdout, flush=True)


@contextlib.contextmanager
def summarised(summary: Summary, prints: bool) -> Iterator[None]:
    """Completes the summary when the context ends, however it does, and prints it as JSON if it is to."""
    try:
        yield
        if not summary.seconds:  # a task that trained with its chief
            summary.end()
    except BaseException as error:
        summary.end(error)
        if prints:
            # An output that cannot be written must not hide how the command ended.
            with contextlib.suppress(OSError):
                _print_summary(summary)
        raise
    if prints:
        with contextlib.suppress(BrokenPipeError):
            _print_summary(summary)


def _print_summary(summary: Summary) -> None:
    say(json.dumps(summary.to_dict(), indent=2, allow_nan=False))


def write_file(name: str, text: str, *, force: bool) -> None:
    """Writes a file as UTF-8, whole or not at all, in the place of another one only by force."""
    file = check_file(name, force=force)
    with writing(name):
        write_whole(file, text, named=True)


def check_file(name: str, *, force: bool) -> Path:
    """Checks that a file can be named so, by force in place of a regular file; of a link, what it leads to."""
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(name, "FILE")
    file = Path(os.path.expanduser(name))
    name = one_line(name)
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
