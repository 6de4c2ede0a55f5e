"""Checks of the function that `trainer.model` names: read as text, never imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.modules import find_arguments, find_module, is_source

_SCORES = "probabilities"
_OUTPUTS = (_SCORES, "logits", "class_ids")


def check_network(declaration: Declaration, search_paths: Sequence[str]) -> list[Problem]:
    """Checks a network function: how it is called, and what the Evaluator reads of it.

    A whole model_fn has its own outputs, and passes. So does what the text cannot tell: a name that is assigned or
    imported, a class, a function with a decorator.

    Args:
        declaration: Typed values; without `trainer.model` there is nothing to check.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Returns:
        The problems.
    """
    target = declaration.trainer.model
    arguments = _arguments(expand("trainer.model", target), search_paths) if target else None
    if arguments is None:
        return []
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    # The rule of components.trainer.user_code.is_model_fn.
    if {"features", "labels"} <= {*positional, *(argument.arg for argument in arguments.kwonlyargs)}:
        return []
    problems = []
    if not positional and arguments.vararg is None:
        problems.append(
            Problem(
                "trainer.model",
                "the function takes no positional argument",
                "a network function, whose first argument is the number of classes: `def net(num_classes)`; or a whole "
                "model_fn, with arguments named features and labels",
                "give it a first argument, num_classes",
                value=target or "",
            )
        )
    key = declaration.evaluator.prediction_key
    if key != _SCORES:
        what = f"`{key}` gives no right accuracy and loss" if key in _OUTPUTS else f"there is no output `{key}`"
        problems.append(
            Problem(
                "evaluator.prediction_key",
                f"{what}: a network function's model puts out {', '.join(_OUTPUTS)}",
                f"{_SCORES}, unless trainer.model is a whole model_fn",
                f"remove it, or write {_SCORES}",
                value=key,
                depends=("trainer.model", "trainer.module_file"),
            )
        )
    return problems


def _arguments(target: str, search_paths: Sequence[str]) -> ast.arguments | None:
    """The arguments of `package.module:function`, where they can be told."""
    module_name, _, name = target.partition(":")
    module = find_module(module_name, search_paths)
    if module is None or module.file is None or not is_source(module):
        return None
    try:
        return find_arguments(ast.parse(module.file.read_bytes()), name)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
