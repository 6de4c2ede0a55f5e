"""The latest blessed model that the candidate can be compared with."""

from __future__ import annotations

from typing import Any, Optional

from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy

from tfx_estimator.components.artifacts import Artifacts
from tfx_estimator.components.baseline_resolver.comparable import comparable
from tfx_estimator.components.inventory import damage

CANDIDATE = "candidate"


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
        """Resolves the baseline.

        Args:
            input_dict: `model`: all models; `model_blessing`: all blessings; `candidate`: the model to evaluate.

        Returns:
            The latest blessed other model and its blessing, empty lists where there is none; and the candidate.
        """
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
