"""The `evaluator` section: metrics, and the thresholds for blessing a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.best import better
from tfx_estimator.pipeline.config.section import Field, Limits, Section, number, shorthand
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, Task

# Metrics that are always computed: of images, and by kind of task.
COUNT = "ExampleCount"
BUILT_IN = ("SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", COUNT)
# Ours: how much better a model is than the best constant prediction.
SKILL = "Skill"
# Its lowest value that is blessed by default.
LEAST_SKILL = 1e-6
_OF_MEANS = ("Calibration", "MeanLabel", "MeanPrediction", COUNT)
_BY_KIND = {
    CLASSES: (*BUILT_IN, SKILL),
    BINARY: ("AUC", "BinaryCrossentropy", SKILL, "BinaryAccuracy", *_OF_MEANS),
    REGRESSION: ("RootMeanSquaredError", "MeanAbsoluteError", SKILL, "MeanSquaredError", *_OF_MEANS),
}
# The metrics to which min_accuracy and max_accuracy_drop apply, and those that the latest blessed model is compared by.
ACCURACIES = {CLASSES: BUILT_IN[0], BINARY: "BinaryAccuracy"}
LOSSES = {CLASSES: BUILT_IN[1], BINARY: "BinaryCrossentropy", REGRESSION: "MeanSquaredError"}
ALL = "all"
# The one metric that reads features, and TFMA's name for those.
MEAN, FEATURES = "Mean", "features"
_DIRECTIONS = {"max": "higher_is_better", "min": "lower_is_better"}
_OF_SLICES = "a feature, `[feature, feature]` crossed, or `{feature: value}`"
# All examples, among the slices of a threshold.
OVERALL = "overall"
_CROSS = "cross"

# `label`; `[label, writer]`; `{cross: [writer], label: 3}`.
SliceItem = Union[str, tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Slice:
    """A slicing spec: one slice per combination of the features' values, of the examples with the given values."""

    features: tuple[str, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The features that examples must have."""
        return (*self.features, *(name for name, _ in self.values))

    def __str__(self) -> str:
        parts = [*self.features, *(f"{name} {value}" for name, value in self.values)]
        return " x ".join(parts) or OVERALL


def parse_slice(item: Any) -> Slice:
    """Reads an item of the declaration."""
    if isinstance(item, str):
        return Slice((item,))
    if isinstance(item, Mapping):
        crossed = item.get(_CROSS, ())
        features = (
            (crossed,) if isinstance(crossed, str) else tuple(crossed) if isinstance(crossed, (list, tuple)) else ()
        )
        return Slice(features, tuple((name, value) for name, value in item.items() if name != _CROSS))
    return Slice(tuple(item))


def parse_held(items: Sequence[Any]) -> list[Slice]:
    """Parses the slices of thresholds; all examples if none is declared."""
    return [Slice() if item == OVERALL else parse_slice(item) for item in items] or [Slice()]


class Threshold(Section):
    """The values of a metric that pass, bounds included."""

    lower: Optional[float] = Field(None, "lowest value that passes")
    upper: Optional[float] = Field(None, "highest value that passes")


class ChangeThreshold(Section):
    """The changes from the latest blessed model that pass: the new model's value minus the earlier one's."""

    absolute: Optional[float] = Field(
        None, "-0.01 lets a metric that should be high drop by 0.01; 0.01 lets one that should be low rise by 0.01"
    )
    relative: Optional[float] = Field(None, "the same, as a fraction of the earlier model's value")
    direction: Optional[Literal["higher_is_better", "lower_is_better"]] = Field(None, "null infers it from the name")


class Metric(Section):
    """A metric of TFMA or Keras, with its thresholds, classes and slices."""

    name: str = Field(..., "class name, such as AUC", min_length=1)
    options: dict[str, Any] = Field({}, "arguments of the class; `name` is its name in the results")
    binarize: Optional[Union[Literal["all"], tuple[Union[int, str], ...]]] = Field(
        None,
        "classes, by label or name, each of which is evaluated against the others; or all",
        check=lambda classes: "" if classes else "it names no class",
        schema={"minItems": 1},
    )
    top_k: tuple[Annotated[int, Limits(1, le=100_000)], ...] = Field((), "predict the k highest scores, for each k")
    aggregate: Optional[Literal["micro", "macro", "weighted_macro"]] = Field(
        None, "average over the classes: micro over their decisions, macro over their values"
    )
    threshold: Optional[Threshold] = Field(None, "values that the model must reach to be blessed")
    change_threshold: Optional[ChangeThreshold] = Field(None, "changes from the latest blessed model that are allowed")
    slices: tuple[SliceItem, ...] = Field((), f"slices of the thresholds: overall, {_OF_SLICES}; none is overall")

    SHORT_FORM = {"type": "string", "minLength": 1}
    SPARSE = True

    def is_one_of(self, built_in: Sequence[str]) -> bool:
        """Returns True if the metric is computed anyway, so that only its thresholds matter."""
        whole = not self.options and self.binarize is None and not self.top_k and self.aggregate is None
        return whole and self.name in built_in

    @property
    def direction(self) -> Optional[str]:
        """The declared direction of improvement, or that of the metric's name; None if unknown."""
        declared = self.change_threshold.direction if self.change_threshold else None
        return declared or _DIRECTIONS.get(better(self.name) or "")


def built_in(task: Task) -> tuple[str, ...]:
    """Returns the metrics that are always computed."""
    return BUILT_IN if task.is_of_images else _BY_KIND[task.kind]


def expand_metrics(value: Any) -> Any:
    """Expands short forms: `AUC` becomes `{name: AUC}`."""
    return list(map(shorthand("name", str), value)) if isinstance(value, (list, tuple)) else value


class EvaluatorSection(Section):
    """Metrics, thresholds and slices of the Evaluator."""

    min_accuracy: float = number(0.0, 0, 1, "lowest accuracy that is blessed, 0 to 1")
    max_accuracy_drop: Optional[float] = number(
        0.01, 0, 1, "accuracy may be lower than the latest blessed model's by this much; null does not compare"
    )
    prediction_key: Optional[str] = Field(
        None,
        "output of the serving signature that holds class scores; null chooses "
        "probabilities, scores, predictions, logistic or logits, or the only one that fits",
    )
    slices: tuple[SliceItem, ...] = Field(("label",), f"what is evaluated separately: {_OF_SLICES}")
    metrics: tuple[Metric, ...] = Field(
        (), "of TFMA and Keras, next to accuracy, mean loss and the number of examples", expand=expand_metrics
    )

    def slices_of(self, task: Task) -> tuple[SliceItem, ...]:
        """Returns the slices; the default ones are of images."""
        is_default = self.slices == EvaluatorSection.__fields__["slices"].default
        return () if is_default and not task.is_of_images else self.slices
