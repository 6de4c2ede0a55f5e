"""Finds Python modules and the names that they define, without importing anything."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = "tfx_estimator"

_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)


@dataclass(frozen=True)
class Module:
    """A found module.

    Args:
        file: Its file; None for a namespace package.
        folders: The folders of its submodules; empty for a module that is no package.
    """

    name: str
    file: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def package(self) -> str:
        """Its `__package__`, to which its imports are relative: a package's is itself."""
        return self.name if self.folders else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Names:
    """The names that a module defines at its top level.

    Args:
        functions: Names defined by `def`.
        others: Classes, assigned and imported names.
        is_open: Whether there may be more, by `from x import *` or a module's `__getattr__`.
    """

    functions: frozenset[str]
    others: frozenset[str]
    is_open: bool

    def __contains__(self, name: str) -> bool:
        return self.is_open or name in self.functions or name in self.others


# Folders of the standard library, also with links resolved, as modules' files are.
_STANDARD = {Path(os.__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))}
_STANDARD |= {folder.resolve() for folder in _STANDARD}


def find_module(name: str, search_paths: Sequence[str] = ()) -> Module | None:
    """Finds a module the way `import` would, without importing it or its parents.

    This project's own package comes first, then `search_paths`, then `sys.path`.

    Args:
        search_paths: Folders that precede `sys.path`: the declaration's folder and the current one.

    Returns:
        The module, or None.
    """
    first = name.partition(".")[0]
    own = [package_parent()] if first == PROJECT else []
    module = _in_folders(first, [*own, *map(Path, search_paths), *(Path(path or os.getcwd()) for path in sys.path)])
    module = module or _by_finders(first)
    for part in name.split(".")[1:]:
        module = module and find_submodule(module, part)
    return module


def package_parent() -> Path:
    """Returns the parent folder of this project's package: `src`, or site-packages."""
    return Path(__file__).absolute().parents[3]


def is_project(module: Module) -> bool:
    """Returns True for a module of this project."""
    return module.name.partition(".")[0] == PROJECT


def is_installed(module: Module) -> bool:
    """Returns True for a third-party or standard module, False for the user's and this project's."""
    if is_project(module):
        return False
    # By its place: the user's may have a standard module's name, such as `trace` or `sched`.
    places = [module.file] if module.file else list(module.folders)
    return not places or any(map(is_installed_place, places))


def is_installed_place(place: Path) -> bool:
    """Returns True for a file or folder in site-packages, dist-packages or the standard library."""
    is_package = any(part in ("site-packages", "dist-packages") for part in place.parts)
    return is_package or any(place.is_relative_to(folder) for folder in _STANDARD)


def is_source(module: Module) -> bool:
    """Returns True if a module has Python source."""
    return module.file is not None and module.file.suffix == ".py"


def defined_names(tree: ast.Module) -> Names:
    """Returns the names that a module's text defines at its top level, including inside `if` and `try`."""
    functions: set[str] = set()
    others: set[str] = set()
    is_open = False
    for node in top_level(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.add(node.name)
        elif isinstance(node, ast.ClassDef):
            others.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            is_open |= any(alias.name == "*" for alias in node.names)
            others.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            others.update(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    return Names(frozenset(functions), frozenset(others), is_open or "__getattr__" in functions)


def find_submodule(module: Module, name: str) -> Module | None:
    """Returns a module of a package by its own name; as for `import`, the first folder counts."""
    found = _in_folders(name, module.folders)
    return found and Module(f"{module.name}.{name}", found.file, found.folders)


def _in_folders(name: str, folders: Iterable[Path]) -> Module | None:
    namespace = []
    for folder in map(str, folders):
        place = os.path.join(folder, name)
        files = (os.path.join(place, "__init__.py"), f"{place}.py", *(f"{place}{suffix}" for suffix in _EXTENSIONS))
        # os.path, because pathlib raises an error for a name that is too long.
        file = next((file for file in files if os.path.isfile(file)), None)
        if file is not None:
            found = Path(file).resolve()
            return Module(name, found, (found.parent,) if file == files[0] else ())
        if os.path.isdir(place):
            namespace.append(Path(place).resolve())
    return Module(name, None, tuple(dict.fromkeys(namespace))) if namespace else None


def _by_finders(name: str) -> Module | None:
    """Finds built-in modules and editable installs, by import hooks; imports nothing, as the name has no dot."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    return Module(name, file, tuple(map(Path, spec.submodule_search_locations or ())))


def listed_names(tree: ast.Module) -> set[str]:
    """Returns the names in a text's `__all__`: `from x import *` imports those submodules of a package."""
    found: set[str] = set()
    for node in ast.walk(tree):
        places: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            places = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            places = [node.target]
        elif isinstance(node, ast.Call):  # for example `__all__.append("name")`
            places = [node.func]
        if any(isinstance(each, ast.Name) and each.id == "__all__" for place in places for each in ast.walk(place)):
            constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            found |= {value for value in constants if isinstance(value, str)}
    return found


def top_level(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields a module's statements, including those in `if`, `try`, `with` and loops."""
    for node in statements:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            for block in ("body", "orelse", "finalbody"):
                yield from top_level(getattr(node, block, ()))
            for handler in getattr(node, "handlers", ()):
                yield from top_level(handler.body)
