"""Checks that no declared value is taken for another one's place by a service that knows no way to quote it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config import render
from tfx_estimator.pipeline.config.credentials import may_hold_one
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.expansion import EXPANDED
from tfx_estimator.pipeline.targets import SPEC_TARGETS

# The start of a placeholder that services replace, in Argo and in a PipelineSpec.
_PLACEHOLDER = "{{"
_NAMED = ("the service takes what is in {{…}} for a name, and puts its value there", "no `{{`")
# Source: https://github.com/kubeflow/pipelines/issues/10370; `value` of Vertex AI's EnvVar.
_REFERRED = ("a container's start takes `$(NAME)` for a variable's value, and `$$` for one `$`", "no `$(` and no `$$`")
# In a Workflow all other values are quoted. These are parameters, which can be chosen at submission, so they are not.
_CHOSEN = ("deploy.pipeline_root", "pusher.destination")


def check_replaced(declaration: Declaration, target: str) -> Iterator[Problem]:
    """Checks what a service would change.

    Args:
        declaration: Typed values.
        target: One of `targets.TARGETS`.
    """
    for path, value in render.leaves(declaration.dict()):
        dotted = ".".join(path)
        if found := _replaced(str(value), target in SPEC_TARGETS or dotted in _CHOSEN):
            written = "" if may_hold_one(dotted, value) else str(value)
            yield Problem(dotted, *found, "write it otherwise", value=written)


def replaced(told: str, target: str) -> Optional[tuple[str, str]]:
    """Says what a service does with a text, if it changes it.

    Args:
        told: What the step is told of data, as names of classes.
        target: One of `targets.TARGETS`.

    Returns:
        That, and what was expected; None if the step is told the text as it is.
    """
    return _replaced(told, target in SPEC_TARGETS)


def _replaced(told: str, expands: bool) -> Optional[tuple[str, str]]:
    if _PLACEHOLDER in told:
        return _NAMED
    return _REFERRED if expands and any(each in told for each in EXPANDED) else None
