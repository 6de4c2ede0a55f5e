"""Checks of the function that `trainer.model` names: read as text, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn

_SCORES = "probabilities"
_OUTPUTS = (_SCORES, "logits", "class_ids", "classes")


def check_network(declaration: Declaration, search_paths: Sequence[str]) -> list[Problem]:
    """Checks a network function: which paths it is for, what it is given, and what the Evaluator reads of it.

    A whole model_fn has its own outputs, and passes on the Estimator path. So does what the text cannot tell: a name
    that is assigned or imported, a class, a function with a decorator.

    Args:
        declaration: Typed values; without `trainer.model` there is nothing to check.
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    target = declaration.trainer.model
    arguments = find_arguments(expand("trainer.model", target), search_paths) if target else None
    if arguments is None:
        return []
    path = declaration.trainer.path
    if is_model_fn(argument_names(arguments)):
        if path == "estimator":
            return []
        return [
            Problem(
                "trainer.path",
                f"{target} is a whole Estimator model_fn, by its arguments features and labels",
                "estimator, for a model_fn; or a trainer.model that returns a tf.keras.Model",
                "set trainer.path: estimator; or name the function that makes the network: its loss and optimizer are "
                "then the declaration's, or its own if the model is compiled",
                value=path,
                depends=("trainer.model",),
            )
        ]
    problems = list(_params(target or "", declaration.trainer.params, arguments))
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


def _params(target: str, params: Mapping[str, Any], arguments: ast.arguments) -> Iterator[Problem]:
    """Checks the names of `trainer.params`: a network function is called with each."""
    if arguments.kwarg is not None:
        return
    known = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
    for name in params:
        if name not in known:
            near = nearest(name, known)
            yield Problem(
                f"trainer.params.{name}",
                f"{target} takes no `{inline(name)}`",
                f"its arguments: {', '.join(known) or 'none'}",
                f"did you mean `{near}`?" if near else "remove it, or add it to the function's arguments",
                depends=("trainer.model", "trainer.module_file"),
            )
