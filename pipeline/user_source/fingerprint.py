"""A fingerprint of source code, for cache keys: TFX itself sees only the name of a dotted path."""

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
    is_installed,
    is_project,
    is_source,
    listed_names,
)

# Of this project, the packages that are followed: what becomes of an example, and what is trained. Data sources are
# not: the Examples artifact keys them.
_FOLLOWED = (f"{PROJECT}.model_fn", f"{PROJECT}.data")
_NOT_FOLLOWED = (f"{PROJECT}.data.sources",)


def fingerprint_source(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> str:
    """Hashes the Python files behind functions or a module file, and all of the user's own that they import.

    Followed are `import` and `from` statements, absolute and relative, anywhere in a file, what `__all__` of a package
    names where `*` is imported, and `importlib.import_module` of a literal name, relative ones too. Left out are the
    standard library, installed packages and all of this project but `model_fn` and `data`. Nothing is imported or run:
    what code loads in other ways, data files too, is not seen. The result depends on modules' names and bytes alone,
    not on where they lie or when they were written, nor on Python's version; of this project's own files, comments and
    docstrings do not count.

    Args:
        target: `package.module:function` (or `package.module`), or the path of a `.py` file; or several.
        search_paths: Folders to look for modules in before `sys.path`: the declaration's folder and the current one
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
    parts.note(digest.hexdigest(), sources)
    return digest.hexdigest()


def fingerprint_meaning(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> str:
    """Hashes the same files without comments, docstrings and layout; takes and raises as `fingerprint_source`."""
    found = {module.name: _meaning(data) for module, data in follow_imports(target, search_paths)}
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def collect_sources(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> dict[str, bytes]:
    """Returns what `fingerprint_source` hashes, by module name; takes and raises the same."""
    found = follow_imports(target, search_paths)
    return {module.name: _meaning(data) if is_project(module) else data for module, data in found}


def follow_imports(target: str | Sequence[str], search_paths: Sequence[str] = ()) -> Iterator[tuple[Module, bytes]]:
    """Yields the modules that `fingerprint_source` hashes, with their bytes; takes and raises the same."""
    seen: set[str] = set()
    for each in [target] if isinstance(target, str) else target:
        yield from _follow(each, search_paths, seen)


def _follow(target: str, search_paths: Sequence[str], seen: set[str]) -> Iterator[tuple[Module, bytes]]:
    module, paths = find_root(target, search_paths)
    waiting = [module, *(parent for parent in find_parents(module.name, paths) if is_followed(parent))]
    looked_for: set[str] = set()
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
                if name in looked_for:
                    continue
                looked_for.add(name)
                found = find_module(name, paths)
                if found is not None and found.name not in seen and is_followed(found):
                    waiting.append(found)


def modules_named(found: Import, search_paths: Sequence[str]) -> Iterator[str]:
    """Yields the names of all modules that an import may run: of the packages around it, and of what it takes."""
    yield from _with_parents(found.name)
    taken: Iterable[str] = found.taken
    if "*" in found.taken:
        package = find_module(found.name, search_paths)
        is_users = package is not None and is_source(package) and is_followed(package)
        tree = parse(read_source(package.file)) if is_users and package is not None and package.file else None
        taken = listed_names(tree) if tree is not None else ()
    yield from (f"{found.name}.{name}" if found.name else name for name in sorted(taken))


def find_root(target: str, search_paths: Sequence[str] = ()) -> tuple[Module, tuple[str, ...]]:
    """Finds the module to start from, by its full name where it lies in a package; and the folders to look in."""
    if target.endswith(".py"):
        file = Path(target).expanduser().resolve()
        if not file.is_file():
            raise _not_found(target, "a Python file")
        # Inside a package, the module's full name makes relative imports work.
        name, folder = file.stem, file.parent
        while (folder / "__init__.py").is_file():
            name, folder = f"{folder.name}.{name}", folder.parent
        return Module(name, file), (str(file.parent), str(folder), *search_paths)
    found = find_module(target.partition(":")[0], search_paths)
    if found is None:
        raise _not_found(target, "`package.module:function`")
    return found, tuple(search_paths)


def is_followed(module: Module) -> bool:
    """Tells whether a module's own imports are followed: the user's, and those of this project that decide a model."""
    if is_project(module):
        return _is_in(module, _FOLLOWED) and not _is_in(module, _NOT_FOLLOWED)
    return not is_installed(module)


def _is_in(module: Module, packages: Sequence[str]) -> bool:
    return any(f"{module.name}.".startswith(f"{package}.") for package in packages)


# The code of a Trainer, a Transform and an Evaluator is for the most part the same.
@functools.lru_cache(maxsize=512)
def _imports(data: bytes, module: Module) -> tuple[Import, ...]:
    tree = parse(data)
    return tuple(imports(tree, module)) if tree is not None else ()


@functools.lru_cache(maxsize=512)
def _meaning(data: bytes) -> bytes:
    """A file without comments, docstrings and layout: another wording trains no other model."""
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
    """Importing a module runs the __init__.py of each package around it."""
    found = (find_module(parent, search_paths) for parent in _with_parents(name.rpartition(".")[0]))
    return [module for module in found if module is not None]


def read_source(file: Path) -> bytes:
    """Returns a module's text; a DeclarationError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        what = f"{file} cannot be read: {error.strerror}"
        raise DeclarationError(what, expected="a readable Python file", todo="check its permissions") from error


def _not_found(target: str, expected: str) -> DeclarationError:
    return DeclarationError(
        f"there is no source of {target!r}",
        expected=expected,
        todo="check the name; modules are looked for in the declaration's folder, the current one and sys.path",
    )
