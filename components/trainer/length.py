"""How long to train: epochs become steps as soon as the examples are counted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from tfx import types
from tfx.types import standard_component_specs

from tfx_estimator.components.tfds_example_gen.properties import num_examples
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.section import MAX_STEPS

logger = get_logger("trainer")

_TRAIN = "train"


def with_steps(
    settings: Settings, exec_properties: dict[str, Any], examples: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Puts the number of steps in the place of `trainer.train_epochs`, where that is declared.

    Nothing that comes later knows of epochs: learning rate, intervals and `fn_args.train_steps` follow from the steps.

    Args:
        exec_properties: The execution's properties; `train_args` among them.

    Raises:
        DeclarationError: The examples are not counted, or the steps are too many, or too few for the warm-up
            or for the profile.
    """
    section = settings.trainer
    if section is None or settings.declaration is None or section.train_epochs is None:
        return settings, exec_properties
    count = sum(each.get_int_custom_property(num_examples(_TRAIN)) for each in examples)
    said = f"trainer.train_epochs: {section.train_epochs:g}"
    if not count:
        raise DeclarationError(
            f"{said}: the examples do not say how many there are to train on",
            expected=f"an Examples artifact with the property {num_examples(_TRAIN)}",
            todo="declare trainer.train_steps instead",
        )
    steps = section.steps_of(count)
    said += f" of {count:,} examples, {section.global_batch_size:,} a step, are {steps:,} steps"
    if steps > MAX_STEPS:
        raise DeclarationError(said, expected=f"at most {MAX_STEPS:,} steps", todo="declare fewer epochs")
    if (warmup := section.optimizer.warmup_steps) >= steps:
        raise DeclarationError(
            f"{said}: the warm-up of trainer.optimizer.warmup_steps, {warmup:,}, does not end before training does",
            expected=f"less than {steps:,} steps of warm-up",
            todo="lower it, or train longer",
        )
    if section.profile is not None and section.profile.start_step >= steps:
        raise DeclarationError(
            f"{said}: training ends before the profile begins, at trainer.profile.start_step, "
            f"{section.profile.start_step:,}",
            expected=f"less than {steps:,}",
            todo="lower it, or train longer",
        )
    logger.info(said)
    trainer = {**settings.declaration["trainer"], "train_steps": steps, "train_epochs": None}
    declaration = {**settings.declaration, "trainer": trainer}
    train_args = {**json.loads(exec_properties[standard_component_specs.TRAIN_ARGS_KEY]), "num_steps": steps}
    properties = {**exec_properties, standard_component_specs.TRAIN_ARGS_KEY: json.dumps(train_args)}
    return dataclasses.replace(settings, declaration=declaration), properties
