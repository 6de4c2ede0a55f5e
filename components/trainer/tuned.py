"""The best values of a tuning, or those of one trial, in the place of the declared ones."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.put_values import of_declaration, put
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune_checks import problems_with
from tfx_estimator.pipeline.config.yaml_text import inline

# As TFX's Tuner calls it.
FILE = "best_hyperparameters.txt"
_STEPS = "trainer.train_steps"
_SOME_DATA = {"dataset": "digits"}

logger = get_logger("trainer")


def with_hyperparameters(
    settings: Settings, exec_properties: dict[str, Any], hyperparameters: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Puts tuned values in the place of the declared ones; what else there is, is in `fn_args.hyperparameters`.

    Args:
        exec_properties: The execution's properties; `train_args` among them.
        hyperparameters: Of a Tuner; none where there is none.

    Raises:
        DeclarationError: They do not go together, or have no place in this declaration.
    """
    if not hyperparameters or settings.declaration is None:
        return settings, exec_properties
    values = of_declaration(read_values(artifact_utils.get_single_uri(list(hyperparameters))))
    if not values:
        return settings, exec_properties
    logger.info(f"tuned: {', '.join(f'{name} {inline(value)}' for name, value in values.items())}")
    # On a service the Trainer is not told of the data, and no value of its own hangs on them.
    whole = Declaration.parse_obj({"data": _SOME_DATA, **settings.declaration, "tune": None})
    if problems := problems_with(whole, values):
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise DeclarationError(
            f"with these values, {first.path}: {first.what}{more}", expected=first.expected, todo=first.todo
        )
    declaration, _ = put(settings.declaration, values)
    # Short forms written out, as everywhere behind the declaration.
    trainer = TrainerSection.parse_obj(declaration["trainer"]).dict()
    settings = dataclasses.replace(settings, declaration={**declaration, "trainer": trainer})
    properties = {**exec_properties, SETTINGS_KEY: settings.to_properties()[SETTINGS_KEY]}
    if _STEPS in values:
        properties = with_length(properties, values[_STEPS])
    return settings, properties


def with_length(exec_properties: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Returns an execution's properties with another number of steps."""
    key = standard_component_specs.TRAIN_ARGS_KEY
    train_args = {**json.loads(exec_properties[key]), "num_steps": steps}
    return {**exec_properties, key: json.dumps(train_args)}


def read_values(uri: str) -> dict[str, Any]:
    """Reads the values out of a HyperParameters artifact."""
    # Whatever its name: there is one, as TFX reads it.
    (name,) = fileio.listdir(uri)
    with fileio.open(os.path.join(uri, name)) as file:
        return json.loads(file.read())["values"]


def write_config(uri: str, config: Mapping[str, Any]) -> None:
    """Writes a HyperParameters artifact.

    Args:
        config: As `keras_tuner.HyperParameters.get_config` returns it.
    """
    fileio.makedirs(uri)
    write_whole(os.path.join(uri, FILE), json.dumps(config))
