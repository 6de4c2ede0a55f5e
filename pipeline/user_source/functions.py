"""The arguments of a user's function, and what it may return: read as text, never imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from tfx_estimator.pipeline.user_source.imports import parse
from tfx_estimator.pipeline.user_source.modules import Module, defined_names, find_module, is_source, top_level

_MODEL_FN = {"features", "labels"}


def is_model_fn(names: Collection[str]) -> bool:
    """Tells a whole Estimator model_fn, which takes features, labels and mode, from a network function."""
    return set(names) >= _MODEL_FN


def argument_names(arguments: ast.arguments) -> list[str]:
    """Names the arguments that a caller can name."""
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def find_arguments(target: str, search_paths: Sequence[str] = ()) -> ast.arguments | None:
    """Returns the arguments of `package.module:function`; None if the text cannot tell them: see `find_function`.

    Args:
        search_paths: Folders that are searched before `sys.path`.
    """
    function = find_function(target, search_paths)
    return function.args if function is not None else None


def find_function(target: str, search_paths: Sequence[str] = ()) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Returns the definition of `package.module:function`; None if the text cannot tell it.

    It cannot if the name is assigned or imported, is a class, has a decorator, or is defined more than once; or if the
    module is not there, or is no Python source.

    Args:
        search_paths: Folders that are searched before `sys.path`.
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
    """Tells whether the module of `package.module:function` calls some object's `compile`, as that of a Keras model."""
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
