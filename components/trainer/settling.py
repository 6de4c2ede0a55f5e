"""What is put into a declaration once it is known: tuned values, and what follows from the number of examples."""

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
from tfx_estimator.pipeline.base.errors import DamagedDataError, DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.put_values import of_declaration, put
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune_checks import problems_with
from tfx_estimator.pipeline.config.yaml_text import inline

# As TFX's Tuner calls it.
FILE = "best_hyperparameters.txt"
_TRAIN = "train"
_STEPS, _EPOCHS = "trainer.train_steps", "trainer.train_epochs"
_SOME_DATA = {"dataset": "digits"}
# Of which the log shows the weights.
_SHOWN = 20

logger = get_logger("trainer")


def with_hyperparameters(
    settings: Settings, exec_properties: dict[str, Any], hyperparameters: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Puts tuned values in the place of the declared ones; what else there is, is in `fn_args.hyperparameters`."""
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
    """Puts in what follows from the number of examples: steps of epochs, weights of balanced classes.

    Args:
        count: Tells their labels, where they are counted already; None counts them.
    """
    settings, exec_properties = with_steps(settings, exec_properties, examples)
    return with_weights(settings, count or (lambda: count_labels(examples))), exec_properties


def with_steps(
    settings: Settings, exec_properties: dict[str, Any], examples: Sequence[types.Artifact]
) -> tuple[Settings, dict[str, Any]]:
    """Puts the number of steps in the place of `trainer.train_epochs`, where that is declared.

    Nothing that comes later knows of epochs: learning rate, intervals and `fn_args.train_steps` follow from the steps.
    """
    section = settings.trainer
    if section is None or section.train_epochs is None:
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
    logger.info(said)
    return _with_values(settings, exec_properties, {_STEPS: steps, _EPOCHS: None}, said)


def _with_values(
    settings: Settings, exec_properties: dict[str, Any], values: Mapping[str, Any], said: str
) -> tuple[Settings, dict[str, Any]]:
    """Puts values in the place of the declared ones, by their dotted paths, if they go together with the others."""
    # On a service the Trainer is not told of the data, and no value of its own hangs on them.
    whole = Declaration.parse_obj({"data": _SOME_DATA, **(settings.declaration or {}), "tune": None})
    if problems := problems_with(Case(whole), values):
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise DeclarationError(f"{said}, {first.path}: {first.what}{more}", expected=first.expected, todo=first.todo)
    declaration, _ = put(settings.declaration or {}, values)
    # Short forms written out, as everywhere behind the declaration.
    trainer = TrainerSection.parse_obj(declaration["trainer"]).dict()
    if _STEPS in values:
        exec_properties = with_length(exec_properties, values[_STEPS])
    return settings.with_trainer(**trainer), exec_properties


def with_length(exec_properties: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Returns an execution's properties with another number of steps."""
    key = standard_component_specs.TRAIN_ARGS_KEY
    train_args = {**json.loads(exec_properties[key]), "num_steps": steps}
    return {**exec_properties, key: json.dumps(train_args)}


def with_weights(settings: Settings, count: Callable[[], Mapping[int, int]]) -> Settings:
    """Puts the weights of balanced classes in the place of the word, where that is declared."""
    if settings.section.class_weights != BALANCED:
        return settings
    counts = count()
    classes = len(settings.label_names)
    wrong = [label for label in counts if not 0 <= label < classes]
    if not counts or wrong:
        found = f"the label {wrong[0]}, of {classes} classes" if wrong else "no label to train on"
        raise DeclarationError(
            f"trainer.class_weights: {BALANCED}: the examples hold {found}",
            expected=f"examples with an int64 feature `{LABEL}`, one of the classes",
            todo="list the weights, or remove them",
        )
    weights = balanced(counts, classes)
    named = zip(settings.label_names, weights)
    told = [f"{name} {weight:.4g} (of {counts.get(label, 0):,})" for label, (name, weight) in enumerate(named)]
    more = f" and {len(told) - _SHOWN} more classes" if len(told) > _SHOWN else ""
    logger.info(f"trainer.class_weights: {BALANCED}: {', '.join(told[:_SHOWN])}{more}")
    return settings.with_trainer(class_weights=list(weights))


def balanced(counts: Mapping[int, int], classes: int) -> tuple[float, ...]:
    """Returns the weight of each label, by which each class counts as much as another, and the examples as many.

    Returns:
        Examples / (classes that occur * examples of the class); 1 of a class that does not occur.

    Source: `class_weight="balanced"` of scikit-learn, after King and Zeng, Logistic Regression in Rare Events Data,
    2001.
    """
    share = sum(counts.values()) / len(counts)
    return tuple(share / counts[label] if label in counts else 1.0 for label in range(classes))


def count_labels(examples: Sequence[types.Artifact]) -> dict[int, int]:
    """Reads all examples of the training split once, and counts those of each label."""
    # Not at the top: it is TensorFlow.
    from tensorflow.core.example import example_pb2

    counts: collections.Counter[int] = collections.Counter()
    for folder in (artifact_utils.get_split_uri([each], _TRAIN) for each in examples):
        for path in sorted(fileio.glob(os.path.join(folder, "*"))):
            for record in _records(path):
                counts.update(example_pb2.Example.FromString(record).features.feature[LABEL].int64_list.value)
    return dict(counts)


def _records(path: str) -> Iterator[bytes]:
    from tensorflow.python.framework import errors
    from tensorflow.python.lib.io.tf_record import tf_record_iterator
    from tensorflow.python.util import deprecation

    try:
        # It checks the checksums. A tf.data pipeline would be no faster, and make this process take hold of all GPUs.
        with deprecation.silence():
            records = tf_record_iterator(path)
        yield from records
    except errors.DataLossError as error:
        raise DamagedDataError(
            f"damaged file {path}: {error.message}",
            expected="a whole TFRecord file, not compressed",
            todo="prepare the data set again",
        ) from error


def read_values(uri: str) -> dict[str, Any]:
    """Reads the values out of a HyperParameters artifact."""
    # Whatever its name: there is one, as TFX reads it.
    (name,) = fileio.listdir(uri)
    with fileio.open(os.path.join(uri, name)) as file:
        return json.loads(file.read())["values"]


def write_config(uri: str, config: Mapping[str, Any]) -> None:
    """Writes a HyperParameters artifact."""
    fileio.makedirs(uri)
    write_whole(os.path.join(uri, FILE), json.dumps(config))
