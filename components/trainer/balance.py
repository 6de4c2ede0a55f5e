"""`trainer.class_weights: balanced` becomes a weight for each label as soon as the examples can be counted."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.errors import DamagedDataError, DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.class_weights import BALANCED

logger = get_logger("trainer")

_TRAIN = "train"
# Of which the log shows the weights.
_SHOWN = 20


def with_weights(settings: Settings, count: Callable[[], Mapping[int, int]]) -> Settings:
    """Puts the weights of balanced classes in the place of the word, where that is declared.

    Args:
        count: Counts the labels to train on: see `count_labels`. It is called only if they are wanted.

    Returns:
        The settings, with a weight for each label.

    Raises:
        DeclarationError: There is no label to count.
        DamagedDataError: A file cannot be read.
    """
    section = settings.trainer
    if section is None or settings.declaration is None or section.class_weights != BALANCED:
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
    trainer = {**settings.declaration["trainer"], "class_weights": list(weights)}
    return dataclasses.replace(settings, declaration={**settings.declaration, "trainer": trainer})


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
    """Reads all examples of the training split once, and counts those of each label.

    Args:
        examples: Artifacts of uncompressed TFRecord files of tf.Examples.

    Raises:
        DamagedDataError: A file ends within a record, or a record is not what was written.
    """
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
