"""The arguments of a user's function, and the `params` that it reads: parsed, never imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from tfx_estimator.pipeline.user_source.imports import parse
from tfx_estimator.pipeline.user_source.modules import Module, defined_names, find_module, is_source, top_level

_MODEL_FN = {"features", "labels"}
_PARAMS = "params"
_TAKES = ("get", "pop", "setdefault")
Keys = tuple[str, ...]


def is_model_fn(names: Collection[str]) -> bool:
    """Returns True for the arguments of an Estimator model_fn, False for those of a network function."""
    return set(names) >= _MODEL_FN


def argument_names(arguments: ast.arguments) -> list[str]:
    """Returns the names of positional and keyword arguments."""
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def find_arguments(target: str, search_paths: Sequence[str] = ()) -> ast.arguments | None:
    """Returns the arguments of `package.module:function`; None if unknown: see `find_function`."""
    function = find_function(target, search_paths)
    return function.args if function is not None else None


def find_function(target: str, search_paths: Sequence[str] = ()) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Returns the definition of `package.module:function`; None if it is unknown.

    It is unknown if the name is assigned or imported, is a class, has a decorator, or is defined more than once; or if
    the module is missing or has no Python source.
    """
    module_name, _, name = target.partition(":")
    module = find_module(module_name, search_paths)
    tree = _parse(module) if module is not None else None
    if tree is None:
        return None
    found = [
        node
        for node in top_level(tree.body)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    if len(found) != 1 or found[0].decorator_list or name in defined_names(tree).others:
        return None
    return found[0]


def may_compile(target: str) -> bool:
    """Returns True if the module of `package.module:function` calls `compile` of an object, such as a Keras model."""
    module = find_module(target.partition(":")[0])
    tree = _parse(module) if module is not None else None
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    return any(
        isinstance(called, ast.Attribute)
        and called.attr == "compile"
        and not (isinstance(called.value, ast.Name) and called.value.id == "re")
        for called in calls
    )


def _parse(module: Module) -> ast.Module | None:
    if module.file is None or not is_source(module):
        return None
    try:
        return parse(module.file.read_bytes())
    except OSError:
        return None


def params_read(target: str, search_paths: Sequence[str] = ()) -> set[Keys] | None:
    """Returns the entries of `params` that a function reads; those of a nested dict as `("optimizer", "name")`.

    None if unknown: `params` that are passed on, iterated over or read by a computed key may be read completely.
    """
    function = find_function(target, search_paths)
    if function is None:
        return None
    if _PARAMS not in argument_names(function.args):
        return set()
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    read: set[Keys] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == _PARAMS and parents[node] is not function.args:
            # The argument of an inner function.
            return None
        if isinstance(node, ast.Name) and node.id == _PARAMS:
            keys = _keys_after(node, parents) if isinstance(node.ctx, ast.Load) else ()
            if not keys:
                return None
            read.add(keys)
    return read


def is_read(keys: Keys, read: set[Keys]) -> bool:
    """Returns True if an entry, a dict that contains it, or a part of it is read; `()` is all of them."""
    return any(keys[: len(each)] == each[: len(keys)] for each in read)


def _keys_after(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> Keys:
    """Returns the keys that follow a name: two of `params["a"].get("b")`; none for another use of the name."""
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
