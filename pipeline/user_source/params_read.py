"""Which entries a user's model_fn takes out of its `params`: read as text, never imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tfx_estimator.pipeline.user_source.functions import argument_names, find_function

_NAME = "params"
_TAKES = ("get", "pop", "setdefault")
Keys = tuple[str, ...]


def params_read(target: str, search_paths: Sequence[str] = ()) -> set[Keys] | None:
    """Returns the entries that a function reads; those of a nested dict as `("optimizer", "name")`.

    Args:
        target: `package.module:function`.
        search_paths: Folders that are searched before `sys.path`.

    Returns:
        The keys, none for a function without such an argument. None if the text cannot tell: what is handed on,
        iterated over or asked for by a computed key may be read as a whole.
    """
    function = find_function(target, search_paths)
    if function is None:
        return None
    if _NAME not in argument_names(function.args):
        return set()
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    read: set[Keys] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == _NAME and parents[node] is not function.args:
            # An inner function has another one.
            return None
        if isinstance(node, ast.Name) and node.id == _NAME:
            keys = _path(node, parents) if isinstance(node.ctx, ast.Load) else ()
            if not keys:
                return None
            read.add(keys)
    return read


def is_read(keys: Keys, read: set[Keys]) -> bool:
    """Tells whether an entry is read: itself, the dict that it is in, or a part of it.

    Args:
        read: What is read; `()` is all.
    """
    return any(keys[: len(each)] == each[: len(keys)] for each in read)


def _path(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> Keys:
    """The keys that follow a name: `params["a"].get("b")` has two; none if it is used in any other way."""
    keys: list[str] = []
    while True:
        parent = parents[node]
        found: ast.expr | None = None
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
            found, node = parent.slice, parent
        elif isinstance(parent, ast.Attribute) and parent.attr in _TAKES:
            call = parents[parent]
            if isinstance(call, ast.Call) and call.func is parent and call.args:
                found, node = call.args[0], call
        elif isinstance(parent, ast.Compare) and parent.comparators == [node] and isinstance(parent.ops[0], ast.In):
            if isinstance(parent.left, ast.Constant) and isinstance(parent.left.value, str):
                keys.append(parent.left.value)
            return tuple(keys)
        if not (isinstance(found, ast.Constant) and isinstance(found.value, str)):
            return tuple(keys)
        keys.append(found.value)
