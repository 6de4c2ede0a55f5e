"""The Tuner's parameter `tune`: the section of a declaration, without a YAML file; and as execution properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Union

from tfx_estimator.components.in_python import TUNER, Argument, read_section
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.put_values import SECTION
from tfx_estimator.pipeline.config.tune import RANDOM, TuneSection, long_ranges
from tfx_estimator.pipeline.config.tune_ranges import check_section

# Execution properties: JSON of what decides the trials, and of the rest, which the driver blanks.
TUNE_KEY, TUNE_OPERATION_KEY = "tfx_estimator_tune", "tfx_estimator_tune_operation"
_ARGUMENT = Argument(
    ("tune",), TUNER, '{"max_trials": 10, "ranges": {"learning_rate": {"min": 1e-4, "max": 0.1, "sampling": "log"}}}'
)


def read_tune(given: Union[Mapping[str, Any], TuneSection]) -> TuneSection:
    """Types and checks what a Tuner was given, as in YAML or typed; the refusal lists everything that is wrong."""
    section = read_section(given, TuneSection, ("tune",), _ARGUMENT, _longer)
    if problems := list(check_section(section)):
        raise _ARGUMENT.refusal(problems)
    return section


def refuse_declared(section: TuneSection) -> None:
    """Refuses dotted paths of a declaration where there is none."""
    for name in section.ranges:
        if name.startswith(f"{SECTION}."):
            raise DeclarationError(
                f"{_ARGUMENT.call} varies {name}, and there is no declaration that it stands in",
                expected="a name that your trainer_fn takes out of fn_args.hyperparameters['values']",
                todo="give it a name of its own, and read it there",
            )


def to_properties(section: TuneSection) -> dict[str, str]:
    """Returns the execution properties that carry the section."""
    deciding, operational = section.split()
    if section.strategy == RANDOM:
        # What is drawn does not depend on what is known by then.
        operational["parallel_trials"] = deciding.pop("parallel_trials")
    return {
        # Ranges in another order are the same tuning.
        TUNE_KEY: json.dumps(deciding, sort_keys=True),
        TUNE_OPERATION_KEY: json.dumps(operational, sort_keys=True),
    }


def of_properties(deciding: str, operational: str) -> TuneSection:
    """Reads what `to_properties` wrote."""
    return TuneSection.parse_obj({**json.loads(deciding), **json.loads(operational or "{}")})


def _longer(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "ranges": long_ranges(values["ranges"])} if "ranges" in values else values
