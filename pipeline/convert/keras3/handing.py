"""Passes what an Estimator answers to a process with Keras 3, which writes and compares the model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import arguments_of_network, find_function
from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.model_fn.bridge.keras3.optimizers import refuse_unknown
from tfx_estimator.model_fn.bridge.keras3.writing import Training
from tfx_estimator.model_fn.bridge.placing import Guide
from tfx_estimator.model_fn.bridge.tensors import Placed, Tensor
from tfx_estimator.model_fn.step.precision import FLOAT32
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.augment import Operation
from tfx_estimator.pipeline.convert.answers import Answers
from tfx_estimator.pipeline.convert.keras3.rates import rate_of
from tfx_estimator.pipeline.convert.new_declaration import copy_modules
from tfx_estimator.pipeline.user_source import loader

_PROCESS = "tfx_estimator.pipeline.convert.keras3.process"
# Modules that a user's module would shadow: `training.py`, and its imports.
_TAKEN = ("training", "keras", "numpy", "pathlib", "tensorflow")


def refuse(settings: Settings) -> None:
    """Refuses a training that cannot be written for Keras 3, before the Estimator runs."""
    section = settings.section
    refuse_unknown(section.optimizer.resolved())
    if section.precision != FLOAT32:
        raise UserCodeError(
            f"--to keras3: trainer.precision is {section.precision}",
            expected=f"a training in {FLOAT32}",
            todo="convert to keras2",
        )


def write(
    folder: str,
    settings: Settings,
    tensors: Sequence[Tensor],
    guide: Guide,
    answers: Answers,
    exported: str,
    checkpoint: str,
    step: int,
) -> tuple[dict[str, Any], list[Placed]]:
    """Writes model, weights, `training.py` and modules of layers; returns fields of a `Proof`, and places."""
    section, classes = settings.section, len(settings.label_names)
    given, named = arguments_of_network(find_function(section.model or ""), classes, section.params)
    training = Training(
        step=step,
        options=section.optimizer.resolved(),
        rate=rate_of(section.optimizer, section.train_steps or 1),
        classes=classes,
        batch=section.global_batch_size,
        augment=[_words(each) for each in section.augment],
        normalised_parts=section.distribution.train.replicas * section.gradient_accumulation,
        **section.loss_options,
    )
    request = {
        "folder": folder,
        "checkpoint": checkpoint,
        "tensors": list(tensors),
        "guide": guide,
        "served": answers.served,
        "target": section.target,
        "given": given,
        "named": named,
        "training": training,
        "seed": section.seed,
        "example": next(answers.batches()).features,
        "trained": answers.trained,
    }
    command = loader.fresh_python(fresh.program(_PROCESS, "convert"))
    result = fresh.ask(command, request, answers.batches(), answers.evaluation(exported))
    copy(folder, result.pop("modules"))
    placed = [Placed(each, *at) for each in tensors if (at := result["places"].get(each.name))]
    del result["places"]
    return result, placed


def copy(folder: str, modules: Mapping[str, str]) -> None:
    """Copies modules, and the user's modules that they import, next to `training.py`."""
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as copied:
        for name, home in modules.items():
            copy_modules(copied, [name], home)
        taken = sorted({each.partition(".")[0] for each in os.listdir(copied)}.intersection(_TAKEN))
        if taken:
            raise UserCodeError(
                f"the module {taken[0]}, which layers of the network need, cannot be copied next to training.py",
                expected=f"another name than {', '.join(_TAKEN)}",
                todo="rename it; or convert to keras2",
            )
        shutil.copytree(copied, folder, dirs_exist_ok=True)


def _words(operation: Operation) -> str:
    (name, options) = next(iter(operation.declared.items()))
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in options.dict().items())
