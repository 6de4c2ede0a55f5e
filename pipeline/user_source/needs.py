"""The missing modules and installed packages that the user's modules import."""

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

# A module with one of these may find other modules where no search of folders does.
_ELSEWHERE = re.compile(rb"\bsys\.(meta_path|modules|path|path_hooks)\b|\bfrom (sys|site) import\b|__path__|addsitedir")


@dataclass(frozen=True)
class Need:
    """An imported module, and the file and line of the import."""

    module: str
    where: str


@dataclass(frozen=True)
class Needs:
    """The imports of modules.

    Args:
        missing: Unconditional imports that are not found.
        unknown: The same, if one of the modules uses other places, for example by changing `sys.path`.
        installed: Top-level modules of installed packages, imported outside of `try`, `with` and `if`.
    """

    missing: tuple[Need, ...] = ()
    unknown: tuple[Need, ...] = ()
    installed: tuple[Need, ...] = ()


def find_needs(target: str, search_paths: Sequence[str] = ()) -> Needs:
    """Finds the imports of the user's modules: parsed, never imported.

    Optional imports are not counted: those in `try`, `if` or a function, and in modules that are only imported there.
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
    not_found = tuple(missing.values())
    needed = tuple(need for name, need in installed.items() if name not in sys.stdlib_module_names)
    return Needs(() if is_open else not_found, not_found if is_open else (), needed)


def _is_missing(found: Import, top: Module | None, paths: Sequence[str]) -> bool:
    name = found.name.partition(".")[0]
    # Some standard modules exist on other systems only.
    if not name or name in sys.stdlib_module_names:
        return False
    if top is None:
        return name not in sys.modules
    # Submodules of installed packages are not checked.
    return not is_installed(top) and not is_project(top) and find_module(found.name, paths) is None
