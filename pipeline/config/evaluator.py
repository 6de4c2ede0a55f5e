"""The `evaluator` section: what a model must reach to be blessed."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic.v1 import Field, confloat

from tfx_estimator.pipeline.config.section import Section


class EvaluatorSection(Section):
    """Thresholds and slices of the Evaluator."""

    min_accuracy: confloat(ge=0, le=1) = Field(default=0.0, description="absolute threshold, 0 to 1")  # type: ignore[valid-type]
    max_accuracy_drop: Optional[confloat(ge=0, le=1)] = Field(  # type: ignore[valid-type]
        default=0.01,
        description="accuracy may be lower than the latest blessed model's by this much; null does not compare",
    )
    prediction_key: Optional[str] = Field(
        default=None,
        description="output of the serving signature that holds class scores; null chooses the one that fits: "
        "probabilities, scores, predictions, logistic, logits, or the only one",
    )
    slices: tuple[Literal["label"], ...] = Field(
        default=("label",), description="features whose values are evaluated apart"
    )
