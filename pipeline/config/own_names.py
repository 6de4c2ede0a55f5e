"""Refuses the user's modules that are named like one of this project's packages: `import` would find the package."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence

from pipeline.config.modules import (
    PROJECT_PACKAGES,
    PROJECT_ROOT,
    Module,
    defined_names,
    find_beside,
    find_module,
    is_project,
    is_source,
)
from pipeline.config.problems import Problem
from pipeline.config.source import follow_imports, imports
from pipeline.errors import DeclarationError


def check_own_names(path: str, target: str, search_paths: Sequence[str]) -> list[Problem]:
    """Checks a function or a module file, and all of the user's modules that it imports.

    Modules of such names that merely lie in the folder are no problem, nor is what this project itself has.

    Args:
        path: Dotted path in the declaration.
        target: `package.module:function`, or the path of a `.py` file.
        search_paths: Folders where the user's modules are looked for.

    Returns:
        The problems, one for each name.
    """
    found: dict[str, Problem] = {}
    if target.endswith(".py"):
        # TFX makes a module file a top-level module, in a package or not.
        name = os.path.basename(target).removesuffix(".py")
        if name in PROJECT_PACKAGES:
            found[name] = _problem(path, target, name, "the module file is named like")
    else:
        base, _, attribute = target.partition(":")
        top = base.partition(".")[0]
        # The project's packages themselves hold nothing: `data:net` can only mean the user's.
        if _is_hidden(base, (attribute,) if "." in base else (), search_paths):
            found[top] = _problem(path, target, top, f"the module `{base}` is named like")
        elif top in PROJECT_PACKAGES:
            return []
    try:
        modules = list(follow_imports(target, search_paths))
    except DeclarationError:
        modules = []  # what is not there, or cannot be read, is another check's to tell
    for module, data in modules:
        if is_project(module) or not is_source(module) or module.file is None:
            continue
        for base, names in imports(data, module):
            top = base.partition(".")[0]
            if top not in found and _is_hidden(base, names, [_root_of(module), *search_paths]):
                found[top] = _problem(path, target, top, f"{module.file} imports `{base}`, which is named like")
    return list(found.values())


def _problem(path: str, target: str, name: str, what: str) -> Problem:
    todo = f"rename it: `{name}` is the name of one of tfx-estimator's own packages"
    expected = "a name other than " + ", ".join(sorted(PROJECT_PACKAGES))
    return Problem(path, f"{what} a package of tfx-estimator, which Python finds instead", expected, todo, value=target)


def _is_hidden(base: str, names: Sequence[str], folders: Sequence[str]) -> bool:
    """Tells whether only a module of the user's has what is imported, and this project's package hides it."""
    if base.partition(".")[0] not in PROJECT_PACKAGES:
        return False
    theirs = find_beside(base, folders)
    if theirs is None or not _has(theirs, names, [find_beside(f"{base}.{name}", folders) for name in names]):
        return False
    # `import data` alone, or all that is in it: the project's own packages themselves hold nothing.
    if "." not in base and set(names) <= {"*"}:
        return True
    ours = find_module(base)
    return ours is None or not _has(ours, names, [find_module(f"{base}.{name}") for name in names])


def _has(module: Module, names: Sequence[str], submodules: Sequence[Module | None]) -> bool:
    """Tells whether a module has all of these names, as submodules or in its text; a folder alone has nothing."""
    if not names or "*" in names:
        return module.file is not None
    missing = [name for name, submodule in zip(names, submodules) if submodule is None or submodule.file is None]
    return not missing or set(missing) <= set(_defined(module, missing))


def _defined(module: Module, names: Sequence[str]) -> Iterator[str]:
    """Which of these names a module's text defines; all, where it cannot be read."""
    if module.file is None:
        return
    try:
        known = defined_names(ast.parse(module.file.read_bytes())) if is_source(module) else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        known = None
    yield from (name for name in names if known is None or name in known)


def _root_of(module: Module) -> str:
    """The folder in which a module's top-level name lies."""
    file = module.file or PROJECT_ROOT
    return str(file.parents[module.name.count(".") + bool(module.folders)])
