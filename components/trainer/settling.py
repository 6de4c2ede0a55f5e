"""Completes a declaration before training: tuned values, and values that depend on the number of examples."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.tfds_example_gen.properties import num_examples
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.put_values import of_declaration, put
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune_checks import problems_with
from tfx_estimator.pipeline.config.yaml_text import inline

# The same name as with TFX's Tuner.
FILE = "best_hyperparameters.txt"
_TRAIN = "train"
_STEPS, _EPOCHS = "trainer.train_steps", "trainer.train_epochs"
_SOME_DATA = {"dataset": "digits"}
_SHOWN_CLASSES = 20

logger = get_logger("trainer")


def with_hyperparameters(
    settings: Settings, exec_properties: dict[str, Any], hyperparameters: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Replaces declared values by tuned ones; other hyperparameters are in `fn_args.hyperparameters`."""
    if not hyperparameters or settings.declaration is None:
        return settings, exec_properties
    values = of_declaration(read_values(artifact_utils.get_single_uri(list(hyperparameters))))
    if not values:
        return settings, exec_properties
    logger.info(f"tuned: {', '.join(f'{name} {inline(value)}' for name, value in values.items())}")
    return _with_values(settings, exec_properties, values, "with these values")


def with_counts(
    settings: Settings,
    exec_properties: dict[str, Any],
    examples: Sequence[types.Artifact],
    count: Optional[Callable[[], Mapping[int, int]]] = None,
) -> tuple[Settings, dict[str, Any]]:
    """Sets values that depend on the number of examples: steps from epochs, weights of balanced classes.

    Args:
        count: Returns the number of examples by label; None counts them.
    """
    settings, exec_properties = with_steps(settings, exec_properties, examples)
    return with_weights(settings, count or (lambda: count_labels(examples, settings.task.label))), exec_properties


def with_steps(
    settings: Settings, exec_properties: dict[str, Any], examples: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Replaces `trainer.train_epochs`, if declared, by the number of steps.

    Everything else uses steps only: learning rate, intervals and `fn_args.train_steps`.
    """
    section = settings.trainer
    if section is None or section.train_epochs is None:
        return settings, exec_properties
    count = sum(each.get_int_custom_property(num_examples(_TRAIN)) or _count(each) for each in examples)
    message = f"trainer.train_epochs: {section.train_epochs:g}"
    if not count:
        raise DeclarationError(
            f"{message}: there is no training example",
            expected=f"records in the split {_TRAIN} of the Examples artifact",
            todo="see the files in its folder",
        )
    steps = section.steps_of(count)
    message += f" of {count:,} examples, {section.global_batch_size:,} a step, are {steps:,} steps"
    logger.info(message)
    return _with_values(settings, exec_properties, {_STEPS: steps, _EPOCHS: None}, message)


def _with_values(
    settings: Settings, exec_properties: dict[str, Any], values: Mapping[str, Any], message: str
) -> tuple[Settings, dict[str, Any]]:
    """Replaces declared values, by their dotted paths, after checking the result.

    Args:
        message: Begins the error of a wrong result.
    """
    # On a service the Trainer's declaration has no section `data`, on which no tuned value depends.
    whole = Declaration.parse_obj({"data": _SOME_DATA, **(settings.declaration or {}), "tune": None})
    if problems := problems_with(Case(whole), values):
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise DeclarationError(f"{message}, {first.path}: {first.what}{more}", expected=first.expected, todo=first.todo)
    declaration, _ = put(settings.declaration or {}, values)
    # With short forms written out, as in all settings.
    trainer = TrainerSection.parse_obj(declaration["trainer"]).dict()
    if _STEPS in values:
        exec_properties = with_length(exec_properties, values[_STEPS])
    return settings.with_trainer(**trainer), exec_properties


def with_length(exec_properties: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Returns execution properties with another number of steps."""
    key = standard_component_specs.TRAIN_ARGS_KEY
    train_args = {**json.loads(exec_properties[key]), "num_steps": steps}
    return {**exec_properties, key: json.dumps(train_args)}


def with_weights(settings: Settings, count: Callable[[], Mapping[int, int]]) -> Settings:
    """Replaces `class_weights: balanced`, if declared, by the weights."""
    if settings.section.class_weights != BALANCED:
        return settings
    counts = count()
    names = settings.label_names or tuple(map(str, range(max(counts, default=0) + 1)))
    classes = len(names)
    wrong = [label for label in counts if not 0 <= label < classes]
    if not counts or wrong:
        found = f"the label {wrong[0]}, of {classes} classes" if wrong else "no label to train on"
        raise DeclarationError(
            f"trainer.class_weights: {BALANCED}: the examples hold {found}",
            expected=f"examples with an int64 feature `{settings.task.label}`, one of the classes",
            todo="list the weights, or remove them",
        )
    weights = balanced(counts, classes)
    named = zip(names, weights)
    shown = [f"{name} {weight:.4g} (of {counts.get(label, 0):,})" for label, (name, weight) in enumerate(named)]
    more = f" and {len(shown) - _SHOWN_CLASSES} more classes" if len(shown) > _SHOWN_CLASSES else ""
    logger.info(f"trainer.class_weights: {BALANCED}: {', '.join(shown[:_SHOWN_CLASSES])}{more}")
    return settings.with_trainer(class_weights=list(weights))


def balanced(counts: Mapping[int, int], classes: int) -> tuple[float, ...]:
    """Returns a weight for each label that balances the classes, and keeps the total weight of the examples.

    Returns:
        Examples / (occurring classes * examples of the class); 1 for a class that does not occur.

    Source: `class_weight="balanced"` of scikit-learn, after King and Zeng, Logistic Regression in Rare Events Data,
    2001.
    """
    share = sum(counts.values()) / len(counts)
    return tuple(share / counts[label] if label in counts else 1.0 for label in range(classes))


def count_labels(examples: Sequence[types.Artifact], label: str = LABEL) -> dict[int, int]:
    """Counts the examples of the training split by label."""
    # Imported late: this module is used without TensorFlow.
    from tensorflow.core.example import example_pb2

    counts: collections.Counter[int] = collections.Counter()
    for each in examples:
        for record in _records(each):
            counts.update(example_pb2.Example.FromString(record).features.feature[label].int64_list.value)
    return dict(counts)


def _count(examples: types.Artifact) -> int:
    """Counts the examples of the training split, of which only TFDSExampleGen writes a property."""
    return sum(1 for _ in _records(examples))


def _records(examples: types.Artifact) -> Iterator[bytes]:
    from tfx_estimator.components.records import read_records

    if _TRAIN in artifact_utils.decode_split_names(examples.split_names):
        for path in sorted(fileio.glob(os.path.join(artifact_utils.get_split_uri([examples], _TRAIN), "*"))):
            yield from read_records(path)


def read_values(uri: str) -> dict[str, Any]:
    """Reads the values of a HyperParameters artifact."""
    # A single file with any name, as in TFX.
    (name,) = fileio.listdir(uri)
    with fileio.open(os.path.join(uri, name)) as file:
        return json.loads(file.read())["values"]


def write_config(uri: str, config: Mapping[str, Any]) -> None:
    """Writes a HyperParameters artifact."""
    fileio.makedirs(uri)
    write_whole(os.path.join(uri, FILE), json.dumps(config))
