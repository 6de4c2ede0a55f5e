"""What the steps of a pipeline are told of the user's code and of the declaration, here and elsewhere."""

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
    """Returns what the Trainer is told of the declaration.

    Elsewhere it names no file of this machine, as the user's modules travel by their names; and it holds nothing that
    another step is for: properties are all of the key there, and that would train anew.

    Args:
        target: As of `create_pipeline`.
    """
    values: dict[str, Any] = json.loads(declaration.to_json())
    if not target:
        return values
    told = {key: values[key] for key in ("name", "trainer")}
    if (file := told["trainer"]["module_file"]) is not None:
        told["trainer"]["module_file"] = os.path.basename(file)
    if declaration.deploy is not None and declaration.deploy.training_job:
        # Of it the step makes the pods that train.
        nodes = {name: values["deploy"]["nodes"][name] for name in ("default", "Trainer")}
        told["deploy"] = {**values["deploy"], "nodes": nodes}
    return told


def travelling_function(section: TrainerSection) -> dict[str, str]:
    """Returns what TFX's Trainer is told to call elsewhere: a module file's function by its dotted path.

    Raises:
        DeclarationError: The module file's text does not tell which function it has.
    """
    if section.module_file is None:
        return built_in_function(section)
    functions = functions_of(section.module_file)
    if not functions:
        raise DeclarationError(
            f"trainer.module_file: {section.module_file} does not say whether it has a run_fn or a trainer_fn",
            expected="`def run_fn` or `def trainer_fn` in it, or `from MODULE import run_fn`",
            todo="import the function by its name, not by `*`",
        )
    return {functions[0]: f"{module_name(section.module_file)}.{functions[0]}"}


def preprocessing_fn(section: TransformSection, target: str) -> Optional[str]:
    """Returns the dotted path of the preprocessing_fn; None where TFX takes the module file.

    Args:
        target: As of `create_pipeline`.
    """
    if section.module_file is None:
        return section.target.replace(":", ".")
    return f"{module_name(section.module_file)}.preprocessing_fn" if target else None


def user_targets(declaration: Declaration) -> dict[str, list[str]]:
    """Returns all code that a declaration names, by the step that imports it, as `user_source.pack.pack` takes it.

    A step is told of its own alone: on a service the wheel's name is part of the key, and a change of the model must
    not ingest the data anew.
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
