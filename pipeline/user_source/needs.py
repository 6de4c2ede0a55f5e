"""What the user's modules need where they are imported, beside each other."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tfx_estimator.pipeline.user_source.fingerprint import (
    find_parents,
    find_root,
    is_followed,
    modules_named,
    read_source,
)
from tfx_estimator.pipeline.user_source.imports import Import, imports, parse
from tfx_estimator.pipeline.user_source.modules import Module, find_module, is_installed, is_project, is_source

# By what a module finds others that no search of folders does: after that, its text cannot tell what there is.
_ELSEWHERE = re.compile(rb"\bsys\.(meta_path|modules|path|path_hooks)\b|\bfrom (sys|site) import\b|__path__|addsitedir")


@dataclass(frozen=True)
class Need:
    """An import in a module of the user's, and its file and line."""

    module: str
    where: str


@dataclass(frozen=True)
class Needs:
    """What modules need.

    Args:
        missing: What is imported whenever they are, and is found nowhere.
        unknown: The same of modules that look elsewhere for others, as in what they add to `sys.path`.
        installed: Packages that are imported, and that nothing says they can do without, by the module's name.
    """

    missing: tuple[Need, ...] = ()
    unknown: tuple[Need, ...] = ()
    installed: tuple[Need, ...] = ()


def find_needs(target: str, search_paths: Sequence[str] = ()) -> Needs:
    """Finds what the user's modules need: read as text, never imported.

    What may be missing is not counted: in `try` or `if`, in a function, and in what is imported in such a place only.
    """
    root, paths = find_root(target, search_paths)
    waiting = [root, *find_parents(root.name, paths)]
    seen: set[str] = set()
    missing: dict[str, Need] = {}
    installed: dict[str, Need] = {}
    is_open = False
    while waiting:
        module = waiting.pop(0)
        if (
            module.name in seen
            or is_project(module)
            or not is_source(module)
            or not (module is root or is_followed(module))
        ):
            continue
        seen.add(module.name)
        assert module.file is not None
        data = read_source(module.file)
        if (tree := parse(data)) is None:
            continue
        is_open |= bool(_ELSEWHERE.search(data))
        for each in imports(tree, module):
            top = find_module(each.name.partition(".")[0], paths) if each.name else None
            where = f"{module.file}:{each.line}"
            if top is not None and is_installed(top) and not each.is_guarded:
                installed.setdefault(top.name, Need(top.name, where))
            if each.is_needed:
                if _is_missing(each, top, paths):
                    missing.setdefault(each.name, Need(each.name, where))
                found = (find_module(name, paths) for name in modules_named(each, paths))
                waiting += [one for one in found if one is not None]
    found_nowhere = tuple(missing.values())
    needed = tuple(need for name, need in installed.items() if name not in sys.stdlib_module_names)
    return Needs(() if is_open else found_nowhere, found_nowhere if is_open else (), needed)


def _is_missing(found: Import, top: Module | None, paths: Sequence[str]) -> bool:
    name = found.name.partition(".")[0]
    # Some of Python's own are of other systems.
    if not name or name in sys.stdlib_module_names:
        return False
    if top is None:
        return name not in sys.modules
    # What an installed package makes of its own parts is its own affair.
    return not is_installed(top) and not is_project(top) and find_module(found.name, paths) is None
