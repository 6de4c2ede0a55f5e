"""Which models can be compared: those that answer the same question about the same data set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tfx import types
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.tfds_example_gen.properties import DATASET, IMAGE_SHAPE, LABEL_NAMES, TEST

_PROPERTY = "comparable"
# Property of an evaluation: why a model that was found is not compared with.
DROPPED = "baseline_dropped"
_LATEST = "the latest blessed model"
ITSELF = f"{_LATEST} is the candidate itself"


def write_comparable(model: types.Artifact, examples: Sequence[types.Artifact], outputs: Sequence[str]) -> None:
    """Writes down, on a trained model, what it can be compared with.

    Args:
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


def why_no_baseline(model: types.Artifact, candidate: types.Artifact) -> str:
    """Tells why a candidate cannot be compared with a model that some resolver found.

    Returns:
        What a person reads; empty if it is another model, and comparable.
    """
    # What was cached is found again under the address, not the id, that it had.
    if model.uri == candidate.uri or (model.id and model.id == candidate.id):
        return ITSELF
    if comparable(model, candidate):
        return ""
    there, here = _comparable_of(model), _comparable_of(candidate)
    if there == here:
        return f"the files of {_LATEST} are gone from {model.uri}"
    if not there:
        return f"{_LATEST} does not say what it was trained on"
    if not here:
        return "the candidate does not say what it was trained on"
    return f"{_LATEST} has {'; '.join(_differences(there, here))}"


def comparable(model: types.Artifact, candidate: types.Artifact) -> bool:
    """Tells whether a model is still there and was trained on the candidate's data set, to the same outputs."""
    same = model.get_string_custom_property(_PROPERTY) == candidate.get_string_custom_property(_PROPERTY)
    return same and fileio.exists(path_utils.serving_model_dir(model.uri))


def _comparable_of(model: types.Artifact) -> dict[str, Any]:
    return json.loads(model.get_string_custom_property(_PROPERTY) or "{}")


def _differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """Words what differs between a model and the candidate."""
    data = list(zip(there["data"], here["data"]))
    for key, title in {DATASET: "data set", IMAGE_SHAPE: "image shape"}.items():
        for its, ours in data:
            if its.get(key) != ours.get(key):
                yield f"the {title} {its.get(key) or 'unknown'}, the candidate {ours.get(key) or 'an unknown one'}"
    # Both may be long.
    if any(its.get(LABEL_NAMES) != ours.get(LABEL_NAMES) for its, ours in data):
        yield "other class names, or the same in another order"
    if any(its.get(TEST) != ours.get(TEST) for its, ours in data) or len(there["data"]) != len(here["data"]):
        yield "other splits"
    if there["outputs"] != here["outputs"]:
        yield f"the outputs {', '.join(there['outputs'])}, the candidate {', '.join(here['outputs'])}"
