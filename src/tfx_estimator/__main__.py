"""The command line: `python -m tfx_estimator`, and the console script `tfx-estimator`."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # `python -m` puts the current folder first, where a user's module would hide Python's own.
    sys.path.pop(0)

import argparse
import contextlib
import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfx_estimator import __version__

if TYPE_CHECKING:
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError

PROG = "tfx-estimator"
# In the order of the help; each is a module of pipeline.commands.
VERBS = (
    "run",
    "predict",
    "serve",
    "report",
    "runs",
    "convert",
    "compare",
    "bench",
    "estimate",
    "compile",
    "execute",
    "submit",
    "adapt",
    "validate",
    "data",
    "show",
    "presets",
    "copy",
    "schema",
    "constraints",
    "doctor",
)
# Long-running verbs, which a separate process watches.
_LONG = ("run", "predict", "compare", "bench", "execute")
# Verbs, besides validate --deep, that may open data or a model: TensorFlow and TFDS leave temporary folders.
_OPENING = ("compile", "submit", "estimate", "report", "runs", "convert", "data", "serve")
_INTERRUPTED = 130
# Shell completion of values: declarations, runs and folders are all files.
_COMPLETED = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
_BROKEN_PIPE = 141


def make_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Returns the command line's parser, of all or some verbs."""
    parser = argparse.ArgumentParser(
        prog=PROG,
        description="One declaration ingests, validates, trains an Estimator or a Keras model, evaluates and pushes.",
        epilog=f"Start with: {PROG} run digits",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    parsers = parser.add_subparsers(dest="verb", metavar="VERB")
    for name in verbs:
        module = importlib.import_module(f"tfx_estimator.pipeline.commands.{name}")
        verb = parsers.add_parser(
            name,
            help=module.HELP,
            description=f"{module.HELP[:1].upper()}{module.HELP[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(verb)
        for action in verb._actions:
            if action.nargs != 0 and not action.choices:
                # For shtab: see docs/install.md.
                action.complete = _COMPLETED  # type: ignore[attr-defined]
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Args:
        argv: Arguments after the program's name; None takes them from the process.

    Returns:
        The exit code: 0, or that of the error's class in pipeline.base.errors.
    """
    from tfx_estimator.pipeline.base import caller
    from tfx_estimator.pipeline.base.ending import shared_status, signals
    from tfx_estimator.pipeline.base.errors import StoppedError

    caller.take()
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 must not turn a message into a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        with signals.handled():
            code = _run(arguments, alone=argv is None)
    except signals.SignalledError as end:
        code = end.exit_code
        _report(StoppedError(str(end), exit_code=code))
    _flush()
    shared_status.end(code)
    return code


def _run(arguments: list[str], alone: bool) -> int:
    """Runs one verb; an error becomes a message and an exit code."""
    from tfx_estimator.pipeline.base.environment import clear_other_keras
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError, exit_code_of
    from tfx_estimator.pipeline.base.stack.stacks import KERAS

    # Called from another program, it must not change the environment.
    if alone:
        # Beam makes thousands of argument parsers a run, each of which looks for files of translations.
        os.environ.setdefault("LANGUAGE", "C")
    if alone and clear_other_keras():
        _print(
            f"{PROG}: {KERAS} is ignored: this project needs Keras 2, which is tf_keras, or else keras of "
            "TensorFlow 2.15"
        )
    try:
        code = _dispatch(arguments, alone)
        sys.stdout.flush()
    except TfxEstimatorError as error:
        _report(error)
        code = exit_code_of(error)
    except KeyboardInterrupt:
        _print(f"{PROG}: interrupted")
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader, for example `head`, has exited.
        code = _BROKEN_PIPE
    except OSError as error:  # a full disk, or an output that cannot be written
        _report(TfxEstimatorError(str(error)))
        code = TfxEstimatorError.exit_code
    return code


def _report(error: TfxEstimatorError) -> None:
    """Passes an error to the calling Python program, which raises it, or prints it."""
    from tfx_estimator.pipeline.base import caller
    from tfx_estimator.pipeline.base.errors import to_json

    if not caller.tell(**{caller.ERROR: to_json(error)}):
        _print(f"{PROG}: {error}")


def _print(text: str) -> None:
    # stderr may be closed; the exit code remains.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _flush() -> None:
    """Flushes the streams; discards what a closed pipe or a full disk left in a buffer, or Python's exit would fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(arguments: list[str], alone: bool) -> int:
    from tfx_estimator.pipeline.base.environment import check_release
    from tfx_estimator.pipeline.base.errors import DeclarationError

    # In a pod, before reading a declaration that another release wrote.
    check_release()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        from tfx_estimator.pipeline.config.problems import nearest

        near = nearest(arguments[0], VERBS)
        todo = f"did you mean `{near}`?" if near else f"see {PROG} --help"
        raise DeclarationError(f"there is no verb {arguments[0]!r}", expected="one of " + ", ".join(VERBS), todo=todo)
    # Adding the options of all verbs would take most of a short verb's time.
    parser = make_parser(arguments[:1] if arguments and arguments[0] in VERBS else VERBS)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed the help, or its error
        return int(end.code or 0)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return 2
    if args.verb not in (*_LONG, *_OPENING) and not getattr(args, "deep", False):
        return args.run(args)
    if not getattr(args, "estimator", None):
        _require_tfx(args.verb)
    if args.verb in _LONG and alone:
        from tfx_estimator.pipeline.run.watcher import watched

        return watched(lambda: args.run(args))
    # Nothing to watch; or called from another program, which must not be forked.
    from tfx_estimator.pipeline.base.ending.scratch import used

    with used():
        return args.run(args)


def _require_tfx(verb: str) -> None:
    from importlib.util import find_spec

    from tfx_estimator.pipeline.base.errors import PipelineError
    from tfx_estimator.pipeline.base.installed import install_command
    from tfx_estimator.pipeline.base.stack import stacks

    if find_spec("tfx") is None:
        stack = stacks.current()
        raise PipelineError(
            f"{PROG} {verb} needs TFX, which is not installed here",
            expected=f"{stack.words} and their dependencies, on Python {stack.python_words} and a Linux with glibc "
            f"{stack.glibc[0]}.{stack.glibc[1]} or newer",
            todo=install_command(f"{stack.extra}-locked") + "; or the other stack, or a container: docs/install.md",
        )


if __name__ == "__main__":
    sys.exit(main())
