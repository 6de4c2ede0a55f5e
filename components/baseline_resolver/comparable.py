"""Which models can be compared: those that answer the same question about the same data set."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfx import types
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.tfds_example_gen.properties import DATASET, IMAGE_SHAPE, LABEL_NAMES, TEST

_PROPERTY = "comparable"


def write_comparable(model: types.Artifact, examples: Sequence[types.Artifact], outputs: Sequence[str]) -> None:
    """Writes down, on a trained model, what it can be compared with.

    Args:
        model: The model artifact.
        examples: The examples that it was trained on.
        outputs: Names of the outputs of its serving signature.
    """
    data = [
        {name: artifact.get_string_custom_property(name) for name in (DATASET, IMAGE_SHAPE, LABEL_NAMES)}
        for artifact in examples
    ]
    for values, artifact in zip(data, examples):
        if test := artifact.get_string_custom_property(TEST):
            # A model that was trained when there was no such split, or another, may have seen these examples.
            values[TEST] = test
    model.set_string_custom_property(_PROPERTY, json.dumps({"data": data, "outputs": list(outputs)}, sort_keys=True))


def is_baseline(model: types.Artifact, candidate: types.Artifact) -> bool:
    """Tells whether a candidate can be compared with a model that some resolver found: another one, and comparable."""
    # What was cached is found again under the address, not the id, that it had.
    is_itself = model.uri == candidate.uri or bool(model.id and model.id == candidate.id)
    return not is_itself and comparable(model, candidate)


def comparable(model: types.Artifact, candidate: types.Artifact) -> bool:
    """Tells whether a model is still there and was trained on the candidate's data set, to the same outputs."""
    same = model.get_string_custom_property(_PROPERTY) == candidate.get_string_custom_property(_PROPERTY)
    return same and fileio.exists(path_utils.serving_model_dir(model.uri))
