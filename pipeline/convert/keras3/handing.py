"""Passes a converted model to a process with Keras 3, and reads its proof."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import arguments_of_network, find_function
from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.model_fn.bridge.arrays import write_arrays
from tfx_estimator.model_fn.bridge.keras3.optimizers import STEP_PLACE, refuse_unknown
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.model_fn.bridge.tensors import STEP, Reader
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.precision import FLOAT32
from tfx_estimator.pipeline.base.errors import PipelineError, UserCodeError, from_json
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.config.augment import Operation
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.convert.new_declaration import copy_modules
from tfx_estimator.pipeline.convert.placing import Placed
from tfx_estimator.pipeline.convert.proof import Answers, Features, next_batches
from tfx_estimator.pipeline.user_source import loader

# Files in the folder that the two processes share.
_REQUEST, _ARRAYS = "request.json", "arrays.npz"
_PROGRAM = "from tfx_estimator.pipeline.convert.keras3 import process; process.main(*sys.argv[1:])"
_NAME = "keras 3"
# Modules that a user's module would shadow: `training.py`, and its imports.
_TAKEN = ("training", "keras", "math", "numpy", "pathlib", "tensorflow")


def refuse(settings: Settings) -> None:
    """Refuses a training that cannot be written for Keras 3, before the Estimator runs.

    Raises:
        UserCodeError: The optimizer or the precision is not supported.
    """
    section = settings.section
    refuse_unknown(section.optimizer.resolved())
    if section.precision != FLOAT32:
        raise UserCodeError(
            f"--to keras3: trainer.precision is {section.precision}",
            expected=f"a training in {FLOAT32}",
            todo="convert to keras2",
        )


def to_keras3(
    folder: str,
    model: KerasClassifier,
    placed: Sequence[Placed],
    answers: Answers,
    settings: Settings,
    step: int,
    proof: Proof,
    reader: Reader,
) -> tuple[Proof, dict[str, tuple[str, str]]]:
    """Writes `model.keras`, `weights.npz` and `training.py` of Keras 3 into a folder, and modules of custom layers.

    Args:
        model: The model in Keras 2; its weights may be those of a later step.
        proof: The proof of Keras 2.
        reader: Reader of the checkpoint.

    Returns:
        The proof with the measurements in Keras 3; and path and rule there, by the place in Keras 2.

    Raises:
        UserCodeError: Keras 3 cannot build the network, or builds another one; or a module's name is taken.
    """
    places = [each.place for each in placed if each.tensor.kind != STEP]
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        write_arrays(os.path.join(scratch, _ARRAYS), _arrays(placed, answers, reader))
        request = _request(folder, model, answers, settings, step)
        write_json(os.path.join(scratch, _REQUEST), {**request, "places": places})
        result = start(scratch)
    if error := result.get("error"):
        raise from_json(error) or PipelineError(str(error))
    _copy(folder, result["modules"])
    moved, wrong = (
        {**getattr(proof, key), **{f"{name} of {_NAME}": value for name, value in result[key].items()}}
        for key in ("next_steps", "wrong")
    )
    return (
        dataclasses.replace(
            proof,
            logits={**proof.logits, _NAME: result["logits"]},
            classes=max(proof.classes, result["classes"]),
            next_steps=moved,
            wrong=wrong,
            draws={**proof.draws, _NAME: result["draws"]["keras"]},
        ),
        {**result["places"], **{each.place: (STEP_PLACE, each.rule) for each in placed if each.tensor.kind == STEP}},
    )


def _copy(folder: str, modules: Mapping[str, str]) -> None:
    """Copies modules, and the user's modules that they import, next to `training.py`.

    Args:
        modules: Folders by module name.
    """
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


def start(scratch: str) -> dict[str, Any]:
    """Runs the process on the files of a folder, and returns its result."""
    return fresh.start(scratch, loader.fresh_python(_PROGRAM), (_REQUEST, _ARRAYS))


def _request(folder: str, model: KerasClassifier, answers: Answers, settings: Settings, step: int) -> dict[str, Any]:
    section = settings.section
    classes = len(settings.label_names)
    given, named = arguments_of_network(find_function(section.model or ""), classes, section.params)
    return {
        "folder": folder,
        "weights": os.path.join(folder, "weights.npz"),
        "target": section.target,
        "given": given,
        "named": named,
        "num_classes": classes,
        "order": [each.name.partition(":")[0] for each in model.network.weights],
        "optimizer": section.optimizer.resolved(),
        "train_steps": section.train_steps or 1,
        "step": step,
        "batch": section.global_batch_size,
        "augment": [_words(each) for each in section.augment],
        "normalised_parts": _parts(section) if _normalises_parts(model) else 1,
        "seed": section.seed,
        **section.loss_options,
        "evaluated": len(answers.batches),
        "compared": answers.compared,
        "trained": dataclasses.asdict(answers.trained),
    }


def _words(operation: Operation) -> str:
    (name, options) = next(iter(operation.declared.items()))
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in options.dict().items())


def _parts(section: TrainerSection) -> int:
    """Returns the number of parts of a batch that are computed separately."""
    return section.distribution.train.replicas * section.gradient_accumulation


def _normalises_parts(model: KerasClassifier) -> bool:
    """True if each part of a batch is normalised separately."""
    layers = [each for each in model.network._flatten_layers() if isinstance(each, tf.keras.layers.BatchNormalization)]
    return any(not getattr(each, "synchronized", False) for each in layers)


def _arrays(placed: Sequence[Placed], answers: Answers, reader: Reader) -> Iterator[tuple[str, np.ndarray]]:
    for count, _, place, _, after, rounded in answers.trained.tensors(placed, reader):
        yield f"after/{count}/{place}", after
        yield f"rounded/{count}/{place}", np.asarray(rounded)
    for each in placed:
        if each.tensor.name in answers.served:
            yield f"served/{each.place}", answers.served[each.tensor.name]
    for number, (features, labels) in enumerate(next_batches(answers.batches.declared)):
        yield from _named(f"train/{number}", features).items()
        yield f"labels/{number}", labels
    for number, (features, logits) in enumerate(answers.batches):
        yield from _named(f"eval/{number}", features).items()
        yield f"logits/{number}", logits


def _named(prefix: str, features: Features) -> dict[str, np.ndarray]:
    # Strings are Python objects, which np.save would pickle.
    plain = {name: each.astype("S") if each.dtype == object else each for name, each in features.items()}
    return {f"{prefix}/{name}": each for name, each in plain.items()}
