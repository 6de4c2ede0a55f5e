"""Resolves the latest blessed model that is comparable with the candidate: same data set, same outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx import types
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.inventory import damage
from tfx_estimator.components.tfds_example_gen.properties import DATASET, IMAGE_SHAPE, LABEL_NAMES, TEST
from tfx_estimator.pipeline.config.task import COMPARABLE

__all__ = ["DROPPED", "ITSELF", "BaselineStrategy", "data_of", "why_no_baseline", "write_comparable"]

CANDIDATE = "candidate"
# Property of an evaluation: why it has no baseline although a model was found.
DROPPED = "baseline_dropped"
_LATEST = "the latest blessed model"
ITSELF = f"{_LATEST} is the candidate itself"


class BaselineStrategy(LatestBlessedModelStrategy):
    """TFX's LatestBlessedModelStrategy, among the other models that are comparable with the candidate.

    If nothing has changed, TFX's own strategy finds the candidate itself, blessed last time: the Evaluator and the
    Pusher then have a new input, and miss the cache. It also finds models of another data set, image size or output,
    on which the Evaluator fails, and models whose files are gone.

        Resolver(
            strategy_class=BaselineStrategy,
            model=Channel(type=Model),
            model_blessing=Channel(type=ModelBlessing),
            candidate=trainer.outputs["model"],
        )
    """

    def resolve_artifacts(self, store: Any, input_dict: Artifacts) -> Optional[Artifacts]:
        """Resolves the latest blessed other model and its blessing; empty lists if there is none."""
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
            damaged = {model.id for model in resolved.get("model", ()) if any(damage(model))}
            if not damaged:
                return {**resolved, CANDIDATE: candidates}
            others["model"] = [model for model in others["model"] if model.id not in damaged]


def write_comparable(
    model: types.Artifact,
    examples: Sequence[types.Artifact],
    outputs: Sequence[str],
    table: Optional[Mapping[str, Any]] = None,
) -> None:
    """Sets the property of a trained model by which models are comparable: its data set, and its served outputs.

    Args:
        table: Of a table, the fields of its `Task`, which say what is predicted.
    """
    data: list[dict[str, Any]] = [
        {name: artifact.get_string_custom_property(name) for name in (DATASET, IMAGE_SHAPE, LABEL_NAMES)}
        for artifact in examples
    ]
    for values, artifact in zip(data, examples):
        if test := artifact.get_string_custom_property(TEST):
            # A model of another test split, or none, may have been trained on these examples.
            values[TEST] = test
    if table:
        data = [dict(table)]
    model.set_string_custom_property(COMPARABLE, json.dumps({"data": data, "outputs": list(outputs)}, sort_keys=True))


def why_no_baseline(model: types.Artifact, candidate: types.Artifact) -> str:
    """Returns why a candidate cannot be compared with a resolver's model; empty if it can."""
    # A cached artifact has a new id, but the same URI.
    if model.uri == candidate.uri or (model.id and model.id == candidate.id):
        return ITSELF
    if comparable(model, candidate):
        return ""
    latest, own = _comparable_of(model), _comparable_of(candidate)
    if latest == own:
        return f"the files of {_LATEST} are gone from {model.uri}"
    if not latest:
        return f"{_LATEST} has no record of its training data"
    if not own:
        return "the candidate has no record of its training data"
    return f"{_LATEST} differs in {', '.join(_differences(latest, own))}"


def comparable(model: types.Artifact, candidate: types.Artifact) -> bool:
    """Returns True if a model still exists, and has the candidate's data set and outputs."""
    same = model.get_string_custom_property(COMPARABLE) == candidate.get_string_custom_property(COMPARABLE)
    return same and fileio.exists(path_utils.serving_model_dir(model.uri))


def data_of(properties: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what a model was trained on, from its custom properties in ML Metadata: of a table, its `Task`."""
    text = properties[COMPARABLE].string_value if COMPARABLE in properties else ""
    return json.loads(text)["data"] if text else []


def _comparable_of(model: types.Artifact) -> dict[str, Any]:
    return json.loads(model.get_string_custom_property(COMPARABLE) or "{}")


def _differences(latest: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Names the differences between a model and the candidate."""
    titles = {DATASET: "data set", IMAGE_SHAPE: "image shape", LABEL_NAMES: "class names", TEST: "test split"}
    titles |= {"kind": "task", "label": "label", "names": "class names", "weight": "weight"}
    found = [
        title
        for key, title in titles.items()
        if [each.get(key) for each in latest["data"]] != [each.get(key) for each in own["data"]]
    ]
    return [*found, *(["outputs"] if latest["outputs"] != own["outputs"] else [])]
