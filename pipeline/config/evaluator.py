"""The `evaluator` section: what is measured, and what a model must reach to be blessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.best import better
from tfx_estimator.pipeline.config.section import Field, Limits, Section, number, shorthand

# Metrics that are measured without being declared.
BUILT_IN = ("SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", "ExampleCount")
ALL = "all"
# The one that reads features, and what TFMA calls those.
MEAN, FEATURES = "Mean", "features"
_DIRECTIONS = {"max": "higher_is_better", "min": "lower_is_better"}
_OF_SLICES = "a feature, `[feature, feature]` crossed, or `{feature: value}`"
# The slice of all examples, where a threshold names the slices that it holds for.
OVERALL = "overall"
_CROSS = "cross"

# `label`; `[label, writer]`; `{cross: [writer], label: 3}`.
SliceItem = Union[str, tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Slice:
    """What one item of a list means: a slice for each value of the features, crossed, of examples with the values."""

    features: tuple[str, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The features that an example must have."""
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
        features = (crossed,) if isinstance(crossed, str) else tuple(crossed) if _is_list(crossed) else ()
        return Slice(features, tuple((name, value) for name, value in item.items() if name != _CROSS))
    return Slice(tuple(item))


def parse_held(items: Sequence[Any]) -> list[Slice]:
    """Reads the slices that thresholds hold for: all examples, where none is declared."""
    return [Slice() if item == OVERALL else parse_slice(item) for item in items] or [Slice()]


def names_nothing(item: Any, held: bool = False) -> bool:
    """Tells whether an item names no feature; `held`: it is one that thresholds hold for."""
    names = parse_slice(item).names
    is_named = names and all(isinstance(name, str) and name.strip() for name in names)
    return not (held and item == OVERALL) and not is_named


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


class Threshold(Section):
    """Which values of a metric are good enough."""

    lower: Optional[float] = Field(None, "the least that will do")
    upper: Optional[float] = Field(None, "the most that will do")


class ChangeThreshold(Section):
    """Which differences from the latest blessed model are good enough: its value less than this one's."""

    absolute: Optional[float] = Field(
        None, "-0.01 of a metric that is to be high: it may be lower by so much; 0.01 of one to be low"
    )
    relative: Optional[float] = Field(None, "the same, as a part of the earlier model's value")
    direction: Optional[Literal["higher_is_better", "lower_is_better"]] = Field(
        None, "null where the metric's name tells"
    )


class Metric(Section):
    """A metric of TFMA or of Keras, what is asked of it, and of which classes and slices."""

    name: str = Field(..., "its class's name, as AUC", min_length=1)
    options: dict[str, Any] = Field({}, "its arguments; `name` is what the results call it")
    binarize: Optional[Union[Literal["all"], tuple[Union[int, str], ...]]] = Field(
        None,
        "for each of these classes, by label or name, against the others; or all",
        check=lambda classes: "" if classes else "it names no class",
        schema={"minItems": 1},
    )
    top_k: tuple[Annotated[int, Limits(1, le=100_000)], ...] = Field(
        (), "with the k highest scores as predictions, for each k"
    )
    aggregate: Optional[Literal["micro", "macro", "weighted_macro"]] = Field(
        None, "over the classes: all their decisions together, or the mean of their values"
    )
    threshold: Optional[Threshold] = Field(None, "the model is blessed within these")
    change_threshold: Optional[ChangeThreshold] = Field(
        None, "and if it is so much better or worse than the latest blessed one"
    )
    slices: tuple[SliceItem, ...] = Field((), f"where the thresholds hold: overall, {_OF_SLICES}; none is overall")

    SHORT_FORM = {"type": "string", "minLength": 1}
    SPARSE = True

    @property
    def is_built_in(self) -> bool:
        """Is it one that is measured anyway, so that there are thresholds to add at most."""
        whole = not self.options and self.binarize is None and not self.top_k and self.aggregate is None
        return whole and self.name in BUILT_IN

    @property
    def direction(self) -> Optional[str]:
        """Which way a change of it is better: as declared, or as its name tells; None where nothing does."""
        declared = self.change_threshold.direction if self.change_threshold else None
        return declared or _DIRECTIONS.get(better(self.name) or "")


def expand_metrics(value: Any) -> Any:
    """Writes short forms as mappings: `AUC` is `{name: AUC}`."""
    return list(map(shorthand("name", str), value)) if _is_list(value) else value


class EvaluatorSection(Section):
    """Metrics, thresholds and slices of the Evaluator."""

    min_accuracy: float = number(0.0, 0, 1, "absolute threshold, 0 to 1")
    max_accuracy_drop: Optional[float] = number(
        0.01, 0, 1, "accuracy may be lower than the latest blessed model's by this much; null does not compare"
    )
    prediction_key: Optional[str] = Field(
        None,
        "output of the serving signature that holds class scores; null chooses the one that fits: "
        "probabilities, scores, predictions, logistic, logits, or the only one",
    )
    slices: tuple[SliceItem, ...] = Field(("label",), f"what is evaluated apart: {_OF_SLICES}")
    metrics: tuple[Metric, ...] = Field(
        (),
        expand=expand_metrics,
        description="of TFMA and Keras, beside accuracy, mean loss and the number of examples",
    )
