"""A fingerprint of source code, for cache keys, as TFX's own contain only a function's dotted path."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source import parts
from tfx_estimator.pipeline.user_source.imports import Import, imports, parse, text_of
from tfx_estimator.pipeline.user_source.modules import (
    PROJECT,
    Module,
    find_module,
    find_submodule,
    is_installed,
    is_project,
    is_source,
    listed_names,
)

# This project's packages that are followed: those that process examples and build models. Data sources are not, because
# the Examples artifact has their fingerprint.
_FOLLOWED = (f"{PROJECT}.model_fn", f"{PROJECT}.data")
_NOT_FOLLOWED = (f"{PROJECT}.data.sources",)


def fingerprint_source(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> str:
    """Hashes the Python files of functions or a module file, and all of the user's own that they import.

    It follows absolute and relative `import` and `from` statements anywhere in a file, a package's `__all__` for `*`,
    and `importlib.import_module` of a literal name. It omits the standard library, installed packages and this project
    except `model_fn` and `data`. Nothing is imported or run: modules that are loaded in other ways, and data files, are
    not included. The result depends on the modules' names and bytes only, not on their paths, times or the version of
    Python; comments and docstrings of this project's own files do not count.

    Args:
        target: `package.module:function` (or `package.module`), or the path of a `.py` file; or several.
        search_paths: Folders of modules that precede `sys.path`: the declaration's folder and the current one
            (`Loaded.search_paths`).

    Returns:
        SHA-256, 64 hexadecimal digits.

    Raises:
        DeclarationError: There is no such module or file.
    """
    digest = hashlib.sha256()
    sources = collect_sources(target, search_paths)
    for name, data in sorted(sources.items()):
        for part in (name.encode(), data):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    parts.record(digest.hexdigest(), sources)
    return digest.hexdigest()


def fingerprint_meaning(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> str:
    """As `fingerprint_source`, without comments, docstrings and layout."""
    found = {module.name: _meaning(data) for module, data in follow_imports(target, search_paths)}
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def collect_sources(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> dict[str, bytes]:
    """Returns the bytes that `fingerprint_source` hashes, by module name."""
    found = follow_imports(target, search_paths)
    return {module.name: _meaning(data) if is_project(module) else data for module, data in found}


def follow_imports(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> Iterator[tuple[Module, bytes]]:
    """Yields the modules that `fingerprint_source` hashes, with their bytes."""
    seen: set[str] = set()
    for each in [target] if isinstance(target, str) else target:
        yield from _follow(each, search_paths, seen)


def _follow(target: str, search_paths: Sequence[str], seen: set[str]) -> Iterator[tuple[Module, bytes]]:
    module, paths = find_root(target, search_paths)
    waiting = [module, *(parent for parent in find_parents(module.name, paths) if is_followed(parent))]

    @functools.cache
    def find(name: str) -> Module | None:
        """Finds each parent once, and nothing below an installed package."""
        parent, _, last = name.rpartition(".")
        if not parent:
            return find_module(name, paths)
        above = find(parent)
        # A namespace package may have modules of the user as well.
        if above is None or (above.file is not None and is_installed(above)):
            return None
        return find_submodule(above, last)

    while waiting:
        module = waiting.pop()
        if module.name in seen:
            continue
        seen.add(module.name)
        if module.file is None:
            continue
        data = read_source(module.file)
        yield module, data
        for each in _imports(data, module) if is_source(module) else ():
            for name in modules_named(each, paths):
                found = find(name)
                if found is not None and found.name not in seen and is_followed(found):
                    waiting.append(found)


def modules_named(found: Import, search_paths: Sequence[str]) -> Iterator[str]:
    """Yields the names of all modules that an import may run: parent packages, and imported submodules."""
    yield from _with_parents(found.name)
    taken: Iterable[str] = found.taken
    if "*" in found.taken:
        package = find_module(found.name, search_paths)
        is_users = package is not None and is_source(package) and is_followed(package)
        tree = parse(read_source(package.file)) if is_users and package is not None and package.file else None
        taken = listed_names(tree) if tree is not None else ()
    yield from (f"{found.name}.{name}" if found.name else name for name in sorted(taken))


def find_root(target: str, search_paths: Sequence[str] = ()) -> tuple[Module, tuple[str, ...]]:
    """Returns the target's module, by its full name if it is in a package, and the search paths."""
    if target.endswith(".py"):
        file = Path(target).expanduser().resolve()
        if not file.is_file():
            raise _not_found(target, "a Python file")
        # Relative imports need the full name of a module in a package.
        name, folder = file.stem, file.parent
        while (folder / "__init__.py").is_file():
            name, folder = f"{folder.name}.{name}", folder.parent
        return Module(name, file), (str(file.parent), str(folder), *search_paths)
    found = find_module(target.partition(":")[0], search_paths)
    if found is None:
        raise _not_found(target, "`package.module:function`")
    return found, tuple(search_paths)


def is_followed(module: Module) -> bool:
    """Returns True if a module is hashed and its imports are followed: the user's, and some of this project."""
    if is_project(module):
        return _is_in(module, _FOLLOWED) and not _is_in(module, _NOT_FOLLOWED)
    return not is_installed(module)


def _is_in(module: Module, packages: Sequence[str]) -> bool:
    return any(f"{module.name}.".startswith(f"{package}.") for package in packages)


# Trainer, Transform and Evaluator share most of their code.
@functools.lru_cache(maxsize=512)
def _imports(data: bytes, module: Module) -> tuple[Import, ...]:
    tree = parse(data)
    return tuple(imports(tree, module)) if tree is not None else ()


@functools.lru_cache(maxsize=512)
def _meaning(data: bytes) -> bytes:
    """Returns a file without comments, docstrings and layout, which do not change the model."""
    tree = parse(data)
    if tree is None:
        return data
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return text_of(tree).encode()


def _with_parents(name: str) -> Iterator[str]:
    names = name.split(".") if name else []
    for length in range(1, len(names) + 1):
        yield ".".join(names[:length])


def find_parents(name: str, search_paths: Sequence[str]) -> list[Module]:
    """Returns the parent packages of a module, whose __init__.py its import runs."""
    found = (find_module(parent, search_paths) for parent in _with_parents(name.rpartition(".")[0]))
    return [module for module in found if module is not None]


def read_source(file: Path) -> bytes:
    """Returns a module's text; raises DeclarationError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        what = f"{file} cannot be read: {error.strerror}"
        raise DeclarationError(what, expected="a readable Python file", todo="check its permissions") from error


def _not_found(target: str, expected: str) -> DeclarationError:
    return DeclarationError(
        f"there is no source of {target!r}",
        expected=expected,
        todo="check the name; modules are searched in the declaration's folder, the current one and sys.path",
    )
