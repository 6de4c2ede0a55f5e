"""The user's own lines in the traceback of an error."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.text import without_stacks
from tfx_estimator.pipeline.user_source.modules import PROJECT, package_parent

_INSTALLED = ("site-packages", "dist-packages")
# AutoGraph's generated code; the original lines are in the error's text.
GENERATED = "__autograph_generated"
_AUTOGRAPH_LINE = re.compile(r'^ {4,}(File "(.+)", line \d+, in .+?)  \*+ *\n +(.+)$', re.MULTILINE)
# For nested layers, Keras nests such texts.
_WRAPPED = "in user code:\n"
# Around the reason, Keras names the layer and its arguments.
_CALLED = re.compile(r"Exception encountered when calling (.+)\.\n *\n *(?:{{function_node .+?}} )?")
MADE_BY = "_tfx_estimator_made_by"  # an object's attribute with the user's line that made it
_INNERMOST = re.compile(r"\n *\n( +)((?:\w+\.)*\w+): (.+(?:\n(?! *\n).+)*)")
# For a loop, AutoGraph's text begins with its own requirement, followed by the actual error.
_RAN_INTO = re.compile(r"\bAutoGraph tried to define it automatically, but ran into a (\w+): (.+)", re.DOTALL)
_FRAME = re.compile(r'^ +File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# Errors of the machine or another task, which are unrelated to the operation that reports them.
_OF_NO_LINE = ("AbortedError", "CancelledError", "DeadlineExceededError", "ResourceExhaustedError", "UnavailableError")


def causes(error: BaseException) -> list[BaseException]:
    """Returns an error and its causes, latest first."""
    chain: list[BaseException] = []
    cause: Optional[BaseException] = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def user_lines(error: BaseException) -> list[str]:
    """Returns the user's frames of an error and its causes: those of no library and not of this project.

    The innermost of the latest error is the last.
    """
    frames = []
    for tb in (cause.__traceback__ for cause in reversed(causes(error))):
        for (frame, _), shown in zip(traceback.walk_tb(tb), traceback.extract_tb(tb)):
            # Of a layer that is called, not of a model that fits.
            called = frame.f_locals.get("self") if shown.name == "__call__" else None
            made_by = getattr(called, "__dict__", {}).get(MADE_BY)
            frames += [made_by, shown] if made_by else [shown]
    text = str(error)
    if without_stacks(text) != text and type(error).__name__ not in _OF_NO_LINE:
        made = dict.fromkeys(_FRAME.findall(text))
        frames += [traceback.FrameSummary(file, int(line), name) for file, line, name in made]
    original = [f"  {where}\n    {code}\n" for where, file, code in _AUTOGRAPH_LINE.findall(text) if is_users(file)]
    # Once each: a layer has several frames, and so has a line that several errors passed.
    once = {(each.filename, each.lineno, each.name): each for each in reversed(frames) if is_users(each.filename)}
    return traceback.format_list([*once.values()][::-1]) + original


def reason(error: BaseException) -> tuple[str, str]:
    """Returns type and text of an error, or of the innermost one in a text of AutoGraph or Keras."""
    text = _CALLED.sub(r"\1: ", str(error)).partition("\n\nCall arguments received by ")[0]
    _, wrapped, inner = text.rpartition(_WRAPPED)
    found = _INNERMOST.search(inner) if wrapped else None
    if not found:
        return type(error).__name__, without_stacks(text)
    message = found[3].replace(f"\n{found[1]}", "\n")
    ran_into = _RAN_INTO.search(message)
    return (ran_into[1], ran_into[2]) if ran_into else (found[2], message)


def is_users(file: str) -> bool:
    """Returns True if a file belongs to no library and not to this project."""
    # Installed scripts are excluded because one may have started this process.
    installed = (sysconfig.get_path("stdlib"), sysconfig.get_path("scripts"), str(package_parent() / PROJECT))
    return (
        not any(file.startswith(os.path.join(folder, "")) for folder in installed)
        and not any(name in file for name in (*_INSTALLED, GENERATED))
        and os.path.exists(file)
    )


def is_users_module(names: Mapping[str, Any]) -> bool:
    """Returns True if these are the globals of a module that belongs to no library and not to this project."""
    # A module file that TFX loads has no `__file__` on Python 3.13.
    return is_users(names.get("__file__") or getattr(names.get("__spec__"), "origin", None) or "")
