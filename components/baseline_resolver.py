"""The latest blessed model that the candidate can be compared with: it answers the same question of the same data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional

from tfx import types
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.inventory import damage
from tfx_estimator.components.tfds_example_gen.properties import DATASET, IMAGE_SHAPE, LABEL_NAMES, TEST

__all__ = ["DROPPED", "ITSELF", "BaselineStrategy", "why_no_baseline", "write_comparable"]

CANDIDATE = "candidate"
_PROPERTY = "comparable"
# Property of an evaluation: why a model that was found is not compared with.
DROPPED = "baseline_dropped"
_LATEST = "the latest blessed model"
ITSELF = f"{_LATEST} is the candidate itself"


class BaselineStrategy(LatestBlessedModelStrategy):
    """TFX's LatestBlessedModelStrategy, among the other models that answer the same question.

    TFX's own strategy finds, when nothing has changed, the candidate that was blessed last time: it is compared with
    itself, and the Evaluator and the Pusher, having a new input, miss the cache. And it finds models of another data
    set, image size or output, on which the Evaluator fails, and models whose files are gone.

        Resolver(
            strategy_class=BaselineStrategy,
            model=Channel(type=Model),
            model_blessing=Channel(type=ModelBlessing),
            candidate=trainer.outputs["model"],
        )
    """

    def resolve_artifacts(self, store: Any, input_dict: Artifacts) -> Optional[Artifacts]:
        """Resolves the latest blessed other model and its blessing, empty lists where there is none."""
        candidates = input_dict[CANDIDATE]
        ids = {artifact.id for artifact in candidates}
        others = {key: value for key, value in input_dict.items() if key != CANDIDATE}
        others["model"] = [
            model
            for model in others["model"]
            if model.id not in ids and all(comparable(model, candidate) for candidate in candidates)
        ]
        while True:
            resolved = super().resolve_artifacts(store, others) or {}
            cut = {model.id for model in resolved.get("model", ()) if any(damage(model))}
            if not cut:
                return {**resolved, CANDIDATE: candidates}
            others["model"] = [model for model in others["model"] if model.id not in cut]


def write_comparable(model: types.Artifact, examples: Sequence[types.Artifact], outputs: Sequence[str]) -> None:
    """Writes down, on a trained model, what it can be compared with: its examples, and its signature's outputs."""
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
    """Tells why a candidate cannot be compared with a model that some resolver found; empty if it can."""
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
    return f"{_LATEST} differs in {', '.join(_differences(there, here))}"


def comparable(model: types.Artifact, candidate: types.Artifact) -> bool:
    """Tells whether a model is still there and was trained on the candidate's data set, to the same outputs."""
    same = model.get_string_custom_property(_PROPERTY) == candidate.get_string_custom_property(_PROPERTY)
    return same and fileio.exists(path_utils.serving_model_dir(model.uri))


def _comparable_of(model: types.Artifact) -> dict[str, Any]:
    return json.loads(model.get_string_custom_property(_PROPERTY) or "{}")


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Names what is not the same of a model and the candidate."""
    titles = {DATASET: "data set", IMAGE_SHAPE: "image shape", LABEL_NAMES: "class names", TEST: "test split"}
    found = [
        title
        for key, title in titles.items()
        if [each.get(key) for each in there["data"]] != [each.get(key) for each in here["data"]]
    ]
    return [*found, *(["outputs"] if there["outputs"] != here["outputs"] else [])]
