"""The parameter `data` of TfdsExampleGen: the section of a declaration, without a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from tfx_estimator.components.in_python import Argument, read_section
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.paths import find_unresolved, resolve_paths
from tfx_estimator.pipeline.config.problems import Problem

_SECTION = "data"
_ARGUMENT = Argument(
    (_SECTION,),
    "TfdsExampleGen",
    'a dict such as {"dataset": "mnist", "splits": {"train": "train[:90%]", "eval": "train[90%:]"}}',
    'give the data set\'s name, or its folder, in a dict: TfdsExampleGen({"dataset": …})',
)


def read_data(given: Union[Mapping[str, Any], DataSection]) -> DataSection:
    """Types what the component was given.

    Args:
        given: As in YAML, `{"dataset": "mnist", "shards": 4}`, with paths relative to the current folder; or typed.

    Returns:
        The section, with absolute paths if it was not typed before.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    return read_section(given, DataSection, (_SECTION,), _ARGUMENT, _resolve)


def _resolve(values: dict[str, Any]) -> dict[str, Any]:
    whole = {_SECTION: values}
    todo = "write the path itself, or `~` for your home folder"
    problems = [
        Problem(".".join(path), what, "a path, or an address", todo, value=value)
        for path, value, what in find_unresolved(whole)
    ]
    if problems:
        raise _ARGUMENT.refusal(problems)
    resolve_paths(whole, {})
    return whole[_SECTION]
