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
    "show",
    "presets",
    "copy",
    "schema",
    "constraints",
    "doctor",
)
# They work for long, and are watched by a process of their own.
_LONG = ("run", "compare", "bench", "execute")
# They may open the data or load a model, of which TensorFlow and TFDS leave temporary folders; validate, with --deep.
_OPENING = ("compile", "submit", "estimate", "report", "runs", "convert", "predict")
_INTERRUPTED = 130
# What a shell offers for a value: a declaration, a run, a folder are all files.
_COMPLETED = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
_BROKEN_PIPE = 141


def make_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Returns the parser of the command line, of all verbs or of some."""
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
                # Of shtab: see docs/install.md.
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
        _tell(StoppedError(str(end), exit_code=code))
    _drop_what_nobody_reads()
    shared_status.end(code)
    return code


def _run(arguments: list[str], alone: bool) -> int:
    """Runs one verb; an error becomes a message and an exit code."""
    from tfx_estimator.pipeline.base.environment import clear_other_keras
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError, exit_code_of
    from tfx_estimator.pipeline.base.stack.stacks import KERAS

    # Of a process that does other things as well, the environment is not ours.
    if alone and clear_other_keras():
        _say(
            f"{PROG}: {KERAS} is left out: this project is for Keras 2: that is tf_keras where it is installed, else "
            "keras of TensorFlow 2.15"
        )
    try:
        code = _dispatch(arguments, alone)
        sys.stdout.flush()
    except TfxEstimatorError as error:
        _tell(error)
        code = exit_code_of(error)
    except KeyboardInterrupt:
        _say(f"{PROG}: interrupted")
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader, `head` for example, has gone.
        code = _BROKEN_PIPE
    except OSError as error:  # a full disk, or an output that cannot be written
        _tell(TfxEstimatorError(str(error)))
        code = TfxEstimatorError.exit_code
    return code


def _tell(error: TfxEstimatorError) -> None:
    """Has whoever called the verb know how it ended: a program of Python raises it, others read it."""
    from tfx_estimator.pipeline.base import caller
    from tfx_estimator.pipeline.base.errors import to_json

    if not caller.tell(**{caller.ERROR: to_json(error)}):
        _say(f"{PROG}: {error}")


def _say(text: str) -> None:
    # Nobody may be there to read it; the exit code says it as well.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _drop_what_nobody_reads() -> None:
    """What a closed pipe, or a full disk, has left in a buffer must not fail again when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(arguments: list[str], alone: bool) -> int:
    from tfx_estimator.pipeline.base.environment import check_release
    from tfx_estimator.pipeline.base.errors import DeclarationError

    # Of a pod's command, before a declaration is read that another release has written.
    check_release()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        from tfx_estimator.pipeline.config.problems import nearest

        near = nearest(arguments[0], VERBS)
        todo = f"did you mean `{near}`?" if near else f"see {PROG} --help"
        raise DeclarationError(f"there is no verb {arguments[0]!r}", expected="one of " + ", ".join(VERBS), todo=todo)
    # Most of the time of a verb that answers at once would go into the options of others.
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
    _require_tfx(args.verb)
    if args.verb in _LONG and alone:
        from tfx_estimator.pipeline.run.watcher import watched

        return watched(lambda: args.run(args))
    # Nothing to watch; or called by a process that does other things as well, which is not to be forked.
    from tfx_estimator.pipeline.base.ending.scratch import used

    with used():
        return args.run(args)


def _require_tfx(verb: str) -> None:
    from importlib.util import find_spec

    from tfx_estimator.pipeline.base.errors import PipelineError
    from tfx_estimator.pipeline.base.stack import stacks

    if find_spec("tfx") is None:
        stack = stacks.current()
        raise PipelineError(
            f"{PROG} {verb} needs TFX, which is not installed here",
            expected=f"{stack.words} and what belongs to them, on Python {stack.python_words} and a Linux with glibc "
            f"{stack.glibc[0]}.{stack.glibc[1]} or newer",
            todo=f'pip install "tfx-estimator[{stack.extra}-locked]"; or the other stack, or a container, as in '
            "docs/install.md",
        )


if __name__ == "__main__":
    sys.exit(main())
