"""The lines of the user's own code in the traceback of an error."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from typing import Optional

from tfx_estimator.pipeline.user_source.modules import PROJECT, package_parent

_INSTALLED = ("site-packages", "dist-packages")
# What AutoGraph makes of the user's functions; of their own lines it tells in the error's text.
_GENERATED = "__autograph_generated"
_TOLD = re.compile(r'^ {4,}(File "(.+)", line \d+, in .+?)  \*+ *\n +(.+)$', re.MULTILINE)
# Keras tells of a layer in a layer by such a text within another.
_WRAPPED = "in user code:\n"
_INNERMOST = re.compile(r"\n *\n( +)((?:\w+\.)*\w+): (.+(?:\n(?! *\n).+)*)")
# In a loop, AutoGraph tells first of what it needed, and then of what went wrong.
_RAN_INTO = re.compile(r"\bAutoGraph tried to define it automatically, but ran into a (\w+): (.+)", re.DOTALL)
# What TensorFlow tells of an operation that failed: where it was made, with all lines of its own, once or twice.
_MADE = re.compile(
    r"(?:Graph execution error:\s*)?Detected at node .+ defined at \(most recent call last\):\n"
    r"(?:(?: .*|<.*>)?\n)*(?:Node: .+\n)?"
)
_MADE_AGAIN = "\n\nOriginal stack trace for "
_FRAME = re.compile(r'^ +File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# Of the machine, or of another task, whichever operation it fell upon.
_OF_NO_LINE = ("AbortedError", "CancelledError", "DeadlineExceededError", "ResourceExhaustedError", "UnavailableError")


def causes(error: BaseException) -> list[BaseException]:
    """An error and what caused it, latest first."""
    chain: list[BaseException] = []
    cause: Optional[BaseException] = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def user_lines(error: BaseException) -> list[str]:
    """Finds the lines that are neither a library's nor this project's, behind an error and what caused it.

    The innermost of the latest error is the last; there is none if no code of the user's took part.
    """
    frames = [frame for cause in reversed(causes(error)) for frame in traceback.extract_tb(cause.__traceback__)]
    text = str(error)
    if without_stacks(text) != text and type(error).__name__ not in _OF_NO_LINE:
        made = dict.fromkeys(_FRAME.findall(text))
        frames += [traceback.FrameSummary(file, int(line), name) for file, line, name in made]
    told = [f"  {where}\n    {code}\n" for where, file, code in _TOLD.findall(text) if is_users(file)]
    return traceback.format_list([frame for frame in frames if is_users(frame.filename)]) + told


def unwrapped(text: str) -> tuple[str, str]:
    """Finds type and text of the innermost error in what AutoGraph, and Keras, make of one in code that they call.

    Both are empty if the text is no such one.
    """
    _, wrapped, inner = text.rpartition(_WRAPPED)
    found = _INNERMOST.search(inner) if wrapped else None
    if not found:
        return "", ""
    said = found[3].replace(f"\n{found[1]}", "\n")
    ran_into = _RAN_INTO.search(said)
    return (ran_into[1], ran_into[2]) if ran_into else (found[2], said)


def without_stacks(text: str) -> str:
    """Shortens what TensorFlow says of an operation that failed to what went wrong: `user_lines` has the lines."""
    shown = _MADE.sub("", text.partition(_MADE_AGAIN)[0])
    return text if shown == text else shown.strip() or text


def is_users(file: str) -> bool:
    """Is a file neither a library's nor this project's."""
    # Of the scripts, one has started this process.
    installed = (sysconfig.get_path("stdlib"), sysconfig.get_path("scripts"), str(package_parent() / PROJECT))
    return (
        not any(file.startswith(os.path.join(folder, "")) for folder in installed)
        and not any(name in file for name in (*_INSTALLED, _GENERATED))
        and os.path.exists(file)
    )
