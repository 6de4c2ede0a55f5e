"""The Trainer's parameter `distribution`: the section `trainer.distribution` of a declaration, without a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from pydantic.v1 import ValidationError

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.explain import explain
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.strategy_checks import check_own_input, check_strategies
from tfx_estimator.pipeline.errors import DeclarationError

_PATH = ("trainer", "distribution")


def read_distribution(given: Union[Mapping[str, Any], Distribution]) -> Distribution:
    """Types and checks what a Trainer was given.

    Args:
        given: As in YAML, `{"train": {"strategy": "multi_worker_mirrored", "workers": 2}}`; or typed.

    Returns:
        The section.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    problems: list[Problem] = []
    section = given if isinstance(given, Distribution) else None
    if section is None:
        values = _plain(given)
        try:
            section = Distribution.parse_obj(values)
        except ValidationError as error:
            whole = {_PATH[0]: {_PATH[1]: values}}
            for item in error.errors():
                location = tuple(part for part in item["loc"] if part != "__root__")
                problems.append(explain({**item, "loc": (*_PATH, *location)}, whole, lambda path: ""))
    if section is not None:
        problems += [*check_strategies(section), *check_own_input(section)]
    if section is None or problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        text = "\n\n".join(f"  {problem}".replace("\n", "\n  ") for problem in problems)
        raise DeclarationError(f"Trainer(distribution=…) has {count}\n\n{text}")
    return section


def _plain(value: Any) -> Any:
    """As YAML would have it."""
    return {str(key): _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
