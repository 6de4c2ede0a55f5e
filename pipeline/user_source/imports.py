"""The imports in a module's text, and whether they are optional."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.user_source.modules import Module

_GUARDS = (ast.If, ast.With, ast.For, ast.While, ast.Match, ast.AsyncWith, ast.AsyncFor, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True)
class Import:
    """An import that a statement may execute.

    Args:
        name: The imported module's absolute dotted name.
        taken: The names that `from` imports; none for a plain `import`.
        line: Its line number.
        is_guarded: It may be skipped, or fail, as in `try`, `with` or `if`.
    """

    name: str
    taken: tuple[str, ...]
    line: int
    is_guarded: bool


def parse(data: bytes) -> ast.Module | None:
    """Returns the syntax tree of a text; None if it does not parse."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def text_of(node: Any) -> str:
    """Returns `ast.dump` in the format of Python 3.10: 3.12 has more fields, and 3.13 omits empty ones."""
    if isinstance(node, list):
        return f"[{', '.join(map(text_of, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        f"{name}={text_of(value)}"
        for name, value in ast.iter_fields(node)
        if name != "type_params" and (value is not None or getattr(type(node), name, ...) is not None)
    ]
    return f"{type(node).__name__}({', '.join(fields)})"


def imports(tree: ast.Module, module: Module) -> Iterator[Import]:
    """Yields all imports in a module's text."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_guarded = waiting.pop()
        for name, taken in _imported(node, module):
            # A function of that name may be another one.
            yield Import(name, taken, getattr(node, "lineno", 0), is_guarded or isinstance(node, ast.Call))
        is_caught = isinstance(node, ast.Try) and bool(node.handlers)
        is_guarded |= is_caught or isinstance(node, _GUARDS)
        waiting += [(child, is_guarded) for child in ast.iter_child_nodes(node)]


def _imported(node: ast.AST, module: Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        name = _absolute("." * node.level + (node.module or ""), module.package)
        if name or not node.level:
            yield name, tuple(alias.name for alias in node.names)
    elif isinstance(node, ast.Call) and _is_import_module(node.func) and (name := _named_by(node, module)):
        yield name, ()


def _named_by(call: ast.Call, module: Module) -> str:
    """Returns the module that a call of `import_module` names by a literal, maybe relative; empty if it does not."""
    given = dict(zip(("name", "package"), call.args)) | {each.arg: each.value for each in call.keywords if each.arg}
    around = given.get("package")
    known = {"__package__": module.package, "__spec__.parent": module.package, "__name__": module.name}
    package = _text(around) or (known.get(ast.unparse(around), "") if around is not None else "")
    return _absolute(_text(given.get("name")), package)


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _absolute(name: str, package: str) -> str:
    """Returns the absolute name of a module; empty if a relative one leaves the top-level package."""
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:
        return ""


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")
