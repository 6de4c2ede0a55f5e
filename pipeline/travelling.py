"""The user's code and the declaration as arguments of the pipeline's steps, on this machine and on a service."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from tfx_estimator.components.trainer.settings import built_in_function
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.data import TransformSection
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.travel_checks import named_code
from tfx_estimator.pipeline.user_source.pack import module_name
from tfx_estimator.pipeline.user_source.trainer_functions import functions_of


def travelling_declaration(declaration: Declaration, target: str) -> dict[str, Any]:
    """Returns the part of the declaration that the Trainer gets.

    On a service it has no local paths, as the user's modules are imported by name; and no options of other steps: all
    properties are part of the cache key there, so a change of those would train again.

    Args:
        target: As of `create_pipeline`.
    """
    values: dict[str, Any] = json.loads(declaration.to_json())
    if not target:
        return values
    part = {key: values[key] for key in ("name", "trainer")}
    part["trainer"]["files"] = []
    if (file := part["trainer"]["module_file"]) is not None:
        part["trainer"]["module_file"] = os.path.basename(file)
    if declaration.deploy is not None and declaration.deploy.trainjob.train:
        # For the manifests of the training job.
        nodes = {name: values["deploy"]["nodes"][name] for name in ("default", "Trainer")}
        part["deploy"] = {**values["deploy"], "nodes": nodes}
    return part


def travelling_function(section: TrainerSection) -> dict[str, str]:
    """Returns the function that TFX's Trainer calls on a service: a module file's by its dotted path.

    Raises:
        DeclarationError: The module file's text does not show which function it has.
    """
    if section.module_file is None:
        return built_in_function(section)
    functions = functions_of(section.module_file)
    if not functions:
        raise DeclarationError(
            f"trainer.module_file: {section.module_file} does not show whether it has a run_fn or a trainer_fn",
            expected="`def run_fn` or `def trainer_fn` in it, or `from MODULE import run_fn`",
            todo="import the function by its name, not by `*`",
        )
    return {functions[0]: f"{module_name(section.module_file)}.{functions[0]}"}


def preprocessing_fn(section: TransformSection, target: str) -> Optional[str]:
    """Returns the dotted path of the preprocessing_fn; None if TFX gets the module file.

    Args:
        target: As of `create_pipeline`.
    """
    if section.module_file is None:
        return section.target.replace(":", ".")
    return f"{module_name(section.module_file)}.preprocessing_fn" if target else None


def user_targets(declaration: Declaration) -> dict[str, list[str]]:
    """Returns the targets for `user_source.pack.pack` that a declaration names, by the step that imports them.

    Each step gets only its own: on a service the wheel's name is part of the cache key, and a change of the model must
    not repeat the ingestion.
    """
    builder, prepared, trained = (
        [code for path, code in named_code(declaration).items() if path.startswith(section)]
        for section in ("data.", "transform.", "trainer.")
    )
    return {
        "TfdsExampleGen": builder,
        "Transform": prepared,
        **({"Tuner": trained} if declaration.tune else {}),
        "Trainer": trained,
    }
