"""Checks of the function that `trainer.model` names: read as text, never imported."""

from __future__ import annotations

from collections.abc import Sequence

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn

_SCORES = "probabilities"
_OUTPUTS = (_SCORES, "logits", "class_ids", "classes")


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
    arguments = find_arguments(expand("trainer.model", target), search_paths) if target else None
    if arguments is None or is_model_fn(argument_names(arguments)):
        return []
    problems = []
    if not (arguments.posonlyargs or arguments.args or arguments.vararg):
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
    if key not in (None, _SCORES):
        what = f"`{key}` gives no right accuracy and loss" if key in _OUTPUTS else f"there is no output `{key}`"
        problems.append(
            Problem(
                "evaluator.prediction_key",
                f"{what}: a network function's model puts out {', '.join(_OUTPUTS)}",
                f"{_SCORES}, unless trainer.model is a whole model_fn",
                f"remove it, or write {_SCORES}",
                value=key or "",
                depends=("trainer.model", "trainer.module_file"),
            )
        )
    return problems
