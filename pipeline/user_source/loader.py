"""Imports the user's modules; one with the name of a library's module is visible to the user's other modules only.

The user's folders come last in `sys.path`, so that they hide nothing. Modules in them use `_import`, which finds the
user's modules first; those that would hide another one are in a separate package.
"""

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import FileFinder, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from tfx_estimator.pipeline.user_source import opened
from tfx_estimator.pipeline.user_source.modules import is_installed_place, package_parent

PACKAGE = "tfx_estimator_own"
# The entries of `sys.path` before the user's folders were added.
_others: set[str] = set()


def install(folders: Sequence[str] = ()) -> None:
    """Installs this import of the user's modules, and appends folders to `sys.path` unless they are in it."""
    if _find_in not in sys.path_hooks:
        _others.update(path for path in sys.path if isinstance(path, str))
        sys.path_hooks.insert(0, _find_in)
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    # Cached finders of these folders do not use the hook.
    sys.path_importer_cache.clear()


def import_name(name: str) -> str:
    """Returns a module's name for imports: in PACKAGE if it would hide another one."""
    top = name.partition(".")[0]
    folders = users_folders()
    if top in sys.builtin_module_names or not _is_file(PathFinder.find_spec(top, folders)):
        return name
    try:
        found = importlib.util.find_spec(top)
    except ValueError:
        found = None  # a module without spec, which is no file
    if found is not None and found.origin and os.path.dirname(_place(found)) in folders:
        return name
    package = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE))
    package.__path__ = folders
    return f"{PACKAGE}.{name}"


def users_folders() -> list[str]:
    """Returns the folders added to `sys.path` since `install`, also by TFX, except those of installed packages."""
    if _find_in not in sys.path_hooks:
        return []
    paths = dict.fromkeys(path for path in sys.path if isinstance(path, str))
    return [path for path in paths if path not in _others and not _has_installed(path)]


def fresh_python(statements: str) -> list[str]:
    """Returns a command that runs statements in a new Python, which finds the same modules as this one.

    It does not use `-m`, which puts the current folder first: a user's own `numpy.py` or `tfx.py` there would hide the
    real one. Nor is our folder first: if that is site-packages, a stray `models` or `data` there would hide the user's.
    And PYTHONPATH cannot contain a folder with a colon in its name.
    """
    own = users_folders()
    others = [folder for folder in _folders() if folder not in own]
    first = f"import sys; sys.path[0] = {str(package_parent())!a}; import tfx_estimator; sys.path[:] = {others!a}"
    then = f"from tfx_estimator.pipeline.user_source import loader; loader.install({own!a})"
    return [sys.executable, "-c", f"{first}; {then}; {statements}"]


def python_path() -> str:
    """Returns a PYTHONPATH for such a process's children, without folders that have a colon in their names."""
    return os.pathsep.join(folder for folder in _folders() if os.pathsep not in folder)


def _folders() -> list[str]:
    # Python ignores other entries, such as a Path.
    return list(dict.fromkeys(path or os.getcwd() for path in sys.path if isinstance(path, str)))


@functools.lru_cache(maxsize=256)
def _has_installed(folder: str) -> bool:
    return is_installed_place(Path(folder))


def _is_file(spec: Optional[importlib.machinery.ModuleSpec]) -> bool:
    # A folder without __init__.py hides nothing.
    return spec is not None and spec.origin is not None


def _place(spec: importlib.machinery.ModuleSpec) -> str:
    """Returns a module's file, or a package's folder."""
    origin = spec.origin or ""
    return origin if spec.submodule_search_locations is None else os.path.dirname(origin)


def _find_in(folder: str) -> FileFinder:
    """Implements a hook of `sys.path_hooks`."""
    around = [path for path in sys.path if isinstance(path, str) and f"{folder}/".startswith(os.path.join(path, ""))]
    # The nearest entry decides: a virtual environment, or this project, may be inside of the user's folder.
    if not os.path.isdir(folder) or max(around, key=len, default="") not in users_folders():
        raise ImportError("not the user's", path=folder)
    return FileFinder(
        folder,
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (Loader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )


class Loader(SourceFileLoader):
    """Loads a module of the user's code."""

    def exec_module(self, module: ModuleType) -> None:
        """Executes a module with its own builtins, whose `__import__` its `import` statements call."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Optional[Mapping[str, Any]] = None,
    locals: Optional[Mapping[str, Any]] = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> ModuleType:
    """Replaces `__import__` for the user's modules."""
    own = name if level else import_name(name)
    module = builtins.__import__(own, globals, locals, fromlist, level)
    opened.watch()
    # `import a.b` binds a.
    return module if own == name or fromlist else sys.modules[f"{PACKAGE}.{name.partition('.')[0]}"]
