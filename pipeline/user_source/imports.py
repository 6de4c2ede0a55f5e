"""What a module's text imports, where, and whether it can do without."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tfx_estimator.pipeline.user_source.modules import Module

# By what a module finds others that no search of folders does: after that, its text cannot tell what there is.
_OF_SYS = ("meta_path", "modules", "path", "path_hooks")
_ELSEWHERE = ("__path__", "addsitedir")
_GUARDS = (ast.If, ast.With, ast.For, ast.While, ast.Match, ast.AsyncWith, ast.AsyncFor, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True)
class Import:
    """What one statement may import.

    Args:
        name: A module's absolute dotted name.
        taken: The names that `from` takes out of it; none for a plain `import`.
        line: Where it stands.
        is_needed: It runs whenever its module is imported.
        is_guarded: It may be left out, or fail, as in `try`, `with` or `if`.
    """

    name: str
    taken: tuple[str, ...]
    line: int
    is_needed: bool
    is_guarded: bool


def parse(data: bytes) -> ast.Module | None:
    """Returns the tree of a text; None if it does not parse."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imports(tree: ast.Module, module: Module) -> Iterator[Import]:
    """Yields what a module's text may import, anywhere in it.

    Args:
        module: Where it stands.
    """
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, False)]
    while waiting:
        node, is_needed, is_guarded = waiting.pop()
        for name, taken in _imported(node, module):
            # A function of that name may be anybody's.
            is_call = isinstance(node, ast.Call)
            line = getattr(node, "lineno", 0)
            yield Import(name, taken, line, is_needed and not is_call, is_guarded or is_call)
        is_caught = isinstance(node, ast.Try) and bool(node.handlers)
        if is_caught or isinstance(node, _GUARDS):
            is_needed, is_guarded = False, True
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            is_needed = False
        waiting += [(child, is_needed, is_guarded) for child in ast.iter_child_nodes(node)]


def looks_elsewhere(tree: ast.Module) -> bool:
    """Tells whether a module's text has to do with where, or how, Python finds modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
            found = node.attr in _OF_SYS
        elif isinstance(node, ast.ImportFrom):
            found = node.module in ("sys", "site") and any(each.name in (*_OF_SYS, *_ELSEWHERE) for each in node.names)
        else:
            found = getattr(node, "attr", getattr(node, "id", "")) in _ELSEWHERE
        if found:
            return True
    return False


def listed_names(tree: ast.Module) -> set[str]:
    """Returns the names that a text puts into `__all__`: of a package, `from x import *` imports those modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        places: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            places = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            places = [node.target]
        elif isinstance(node, ast.Call):  # as `__all__.append("name")`
            places = [node.func]
        if any(isinstance(each, ast.Name) and each.id == "__all__" for place in places for each in ast.walk(place)):
            found |= {text for each in ast.walk(node) if isinstance(each, ast.expr) and (text := _text(each))}
    return found


def computed_imports(tree: ast.Module, module: Module) -> list[int]:
    """Returns the lines where modules are imported by names that the text does not tell.

    Args:
        module: Where it stands.
    """
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and _is_import_module(node.func)
        and (not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) in ("importlib", "builtins"))
        and not _named_by(node, module)
    )


def _imported(node: ast.AST, module: Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, module.package)
        if base is not None:
            yield base, tuple(alias.name for alias in node.names)
    elif isinstance(node, ast.Call) and _is_import_module(node.func) and (name := _named_by(node, module)):
        yield name, ()


def _named_by(call: ast.Call, module: Module) -> str:
    """The module that a call of `import_module` names by a literal, maybe relative; empty where it does not."""
    given = dict(zip(("name", "package"), call.args)) | {each.arg: each.value for each in call.keywords if each.arg}
    name = _text(given.get("name"))
    if not name.startswith("."):
        return name
    around = given.get("package")
    known = {"__package__": module.package, "__spec__.parent": module.package, "__name__": module.name}
    base = _text(around) or (known.get(ast.unparse(around), "") if around is not None else "")
    rest = name.lstrip(".")
    above = len(name) - len(rest) - 1
    parts = base.split(".") if base else []
    if len(parts) <= above:
        return ""
    return ".".join([*parts[: len(parts) - above], *([rest] if rest else [])])


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _absolute(node: ast.ImportFrom, package: str) -> str | None:
    """The absolute name that `from X import` means; None where it leaves the package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level - 1 > len(parts):
        return None
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")
