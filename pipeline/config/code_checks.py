"""Checks of the user's code that the declaration names; reads it as text, never imports it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tfx_estimator.pipeline.base.files import names_in
from tfx_estimator.pipeline.config.known import names_of
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.user_source.modules import Names, defined_names, find_module, is_source

_TARGET = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")


def check_target(
    path: str, target: str, search_paths: Sequence[str], what: str = "function", of_table: bool = False
) -> list[Problem]:
    """Checks `package.module:function`, or of another `what`: `class`; or a short name for images or tables."""
    form = f"`package.module:{what}`"
    built_in = names_of(path, of_table)
    if target in built_in:
        return []
    if not _TARGET.match(target):
        if built_in:
            form = f"one of {', '.join(sorted(built_in))}; or {form}"
        near = nearest(target, built_in)
        todo = f"did you mean `{near}`?" if near else _form_hint(target)
        return [Problem(path, "this is not of the form MODULE:NAME", form, todo, value=target)]
    module_name, _, name = target.partition(":")
    module = find_module(module_name, search_paths)
    if module is None:
        searched = ", ".join(dict.fromkeys(search_paths)) or "the current folder"
        todo = f"check the name, or put the module into one of these folders: {searched}; or install it"
        return [Problem(path, f"there is no module `{module_name}`", form, todo, value=target)]
    if module.file is None or not is_source(module):
        return []
    names, problem = _read(module.file)
    if names is None:
        return [Problem(path, problem, "Python that parses", "correct the file", value=target)]
    return [] if name in names else [_no_such_name(path, target, name, names, module.file)]


def check_module_file(path: str, file: str, wanted: Sequence[str]) -> list[Problem]:
    """Checks a TFX module file, which must define one of the `wanted` functions."""
    expected = f"a Python file that defines {' or '.join(wanted)}"
    if not os.path.exists(file):
        there = [name for name in names_in(os.path.dirname(file)) if name.endswith(".py")]
        near = nearest(os.path.basename(file), there)
        todo = f"did you mean `{near}`?" if near else "check the path: it is relative to the declaration's folder"
        return [Problem(path, "there is no such file", expected, todo, value=file)]
    names, problem = _read(Path(file))
    if names is None:
        return [Problem(path, problem, expected, "correct the file", value=file)]
    if any(name in names for name in wanted):
        return []
    near = next(filter(None, (nearest(name, names.functions) for name in wanted)), "")
    found = f"it defines {', '.join(sorted(names.functions))}" if names.functions else "it defines no function"
    todo = f"rename `{near}`, or define {' or '.join(wanted)}" if near else f"define {' or '.join(wanted)} in it"
    return [Problem(path, found, expected, todo, value=file)]


def _read(file: Path) -> tuple[Names | None, str]:
    """Returns the names that a file defines; or None, and why it cannot be read."""
    try:
        return defined_names(ast.parse(file.read_bytes())), ""
    except (SyntaxError, ValueError) as error:
        return None, f"{file}:{getattr(error, 'lineno', None) or 1} does not parse: {getattr(error, 'msg', error)}"
    except OSError as error:
        return None, f"{file} cannot be read: {error.strerror}"


def _no_such_name(path: str, target: str, name: str, names: Names, file: Path) -> Problem:
    near = nearest(name, names.functions | names.others)
    todo = f"did you mean `{target.partition(':')[0]}:{near}`?" if near else f"define `{name}` there"
    public = sorted(each for each in names.functions if not each.startswith("_"))
    expected = "one of " + ", ".join(public) if public else f"a module that defines {name}"
    return Problem(path, f"{file} defines no `{name}`", expected, todo, value=target)


def _form_hint(target: str) -> str:
    """Suggests the right form for `nets.small.net`, or `nets/small.py:net`."""
    guess = re.sub(r"\.py(?=:|$)", "", target.strip()).lstrip("./").replace("/", ".")
    guess = guess if ":" in guess else ":".join(guess.rsplit(".", 1))
    return f"did you mean `{guess}`?" if _TARGET.match(guess) else "write the module, a colon, and the name in it"
