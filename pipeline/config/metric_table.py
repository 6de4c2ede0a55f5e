"""The metrics of TFMA and Keras by name: their options, what they can be asked for, and why some cannot be used.

What the installed TFMA says of them is compared by tests/components/evaluator/test_metric_table.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# The forms of a metric, as keys of a declared one: one class against the others, the k highest scores, an aggregate.
BINARIZE, TOP_K, MICRO, MACRO, WEIGHTED = "binarize", "top_k", "micro", "macro", "weighted_macro"
HIGHER, LOWER = "higher_is_better", "lower_is_better"
# The one that reads features, and what TFMA calls those.
MEAN, FEATURES = "Mean", "features"


@dataclass(frozen=True)
class Nature:
    """What is known of a metric.

    Args:
        options: Its arguments.
        required: Those without a default.
        forms: What it can be asked for, beside the whole.
        aggregate: What it is aggregated by where nothing is declared, as its own value would compare labels with
            scores; empty where its own value is right.
        direction: Which way it is better; empty where that depends.
        is_number: Is it no plot and no matrix, so that it can have thresholds.
    """

    options: tuple[str, ...]
    required: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    aggregate: str = ""
    direction: str = ""
    is_number: bool = True


_MEANS = (MACRO, WEIGHTED)
_ALL_FORMS = (BINARIZE, TOP_K, MICRO, *_MEANS)
_OF_CLASSES = (BINARIZE, *_MEANS)
_AT = ("thresholds", "top_k", "class_id", "name")
_SEARCHED = ("num_thresholds", "top_k", "class_id", "name")
_NAME = ("name",)

# Metrics of a confusion matrix.
_HIGHER_AT = (
    "BalancedAccuracy DiagnosticOddsRatio F1Score FowlkesMallowsIndex Informedness Markedness "
    "MatthewsCorrelationCoefficient NPV NegativePredictiveValue PPV PositiveLikelihoodRatio Precision Recall "
    "Specificity TN TNR TP TPR ThreatScore TrueNegatives TruePositives"
)
_LOWER_AT = (
    "FN FNR FP FPR FallOut FalseDiscoveryRate FalseNegatives FalseOmissionRate FalsePositives MissRate "
    "NegativeLikelihoodRatio"
)
_NEITHER_AT = "PredictedPositiveRate Prevalence"
_ERRORS = "MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError"
_OF_ELEMENTS = "Hinge KLDivergence LogCoshError Poisson RootMeanSquaredError SquaredHinge"
_DISCRIMINATION = "CoefficientOfDiscrimination RelativeCoefficientOfDiscrimination SquaredPearsonCorrelation"


def _each(names: str, *args: Any, **kwargs: Any) -> dict[str, Nature]:
    return dict.fromkeys(names.split(), Nature(*args, **kwargs))


METRICS: dict[str, Nature] = {
    **_each(_HIGHER_AT, _AT, (), _ALL_FORMS, direction=HIGHER),
    **_each(_LOWER_AT, _AT, (), _ALL_FORMS, direction=LOWER),
    **_each(_NEITHER_AT, _AT, (), _ALL_FORMS),
    # For one class it may divide by zero.
    "PrevalenceThreshold": Nature(_AT, (), (MICRO,)),
    "BinaryAccuracy": Nature(("threshold", "top_k", "class_id", "name"), (), _ALL_FORMS, direction=HIGHER),
    "AUC": Nature(("curve", "summation_method", "thresholds", *_SEARCHED), (), _ALL_FORMS, direction=HIGHER),
    "AUCPrecisionRecall": Nature(("summation_method", "thresholds", *_SEARCHED), (), _ALL_FORMS, direction=HIGHER),
    "MaxRecall": Nature(("top_k", "class_id", "name"), (), (BINARIZE, TOP_K, MICRO), direction=HIGHER),
    "PrecisionAtRecall": Nature(("recall", "thresholds", *_SEARCHED), ("recall",), _ALL_FORMS, direction=HIGHER),
    "ThresholdAtRecall": Nature(("recall", "thresholds", *_SEARCHED), ("recall",), (BINARIZE, MICRO, *_MEANS)),
    "RecallAtPrecision": Nature(("precision", *_SEARCHED), ("precision",), _ALL_FORMS, direction=HIGHER),
    "RecallAtFalsePositiveRate": Nature(
        ("false_positive_rate", *_SEARCHED), ("false_positive_rate",), _ALL_FORMS, direction=HIGHER
    ),
    "SensitivityAtSpecificity": Nature(("specificity", *_SEARCHED), ("specificity",), _ALL_FORMS, direction=HIGHER),
    "SpecificityAtSensitivity": Nature(("sensitivity", *_SEARCHED), ("sensitivity",), _ALL_FORMS, direction=HIGHER),
    "ConfusionMatrixAtThresholds": Nature(_AT, ("thresholds",), (BINARIZE, TOP_K, MICRO), is_number=False),
    "ConfusionMatrixPlot": Nature(("num_thresholds", "name"), (), (BINARIZE, TOP_K, MICRO), is_number=False),
    "ScoreDistributionPlot": Nature(("num_thresholds", "name"), (), (BINARIZE, TOP_K, MICRO), is_number=False),
    "CalibrationPlot": Nature(("num_buckets", "left", "right", "name"), (), (BINARIZE,), is_number=False),
    **_each("Calibration MeanLabel MeanPrediction", _NAME, (), _OF_CLASSES),
    **_each(_ERRORS, _NAME, (), _OF_CLASSES, direction=LOWER),
    # Metrics over all classes at once.
    **_each("SparseCategoricalAccuracy", _NAME, direction=HIGHER),
    "SparseTopKCategoricalAccuracy": Nature(("k", "name"), direction=HIGHER),
    "SparseCategoricalCrossentropy": Nature(("from_logits", "ignore_class", "axis", "name"), direction=LOWER),
    **_each("ExampleCount WeightedExampleCount", _NAME),
    **_each(_DISCRIMINATION, _NAME, direction=HIGHER),
    MEAN: Nature(("feature_key_path", "example_weights_key_path", "name"), ("feature_key_path",)),
    "FairnessIndicators": Nature(("thresholds", "name"), (), (BINARIZE,)),
    "MultiClassConfusionMatrixAtThresholds": Nature(("thresholds", "name"), is_number=False),
    "MultiClassConfusionMatrixPlot": Nature(("thresholds", "num_thresholds", "name"), is_number=False),
    # Metrics of one score and a label that is 0 or 1: computed for each class.
    **_each(_OF_ELEMENTS, _NAME, (), _OF_CLASSES, MACRO, LOWER),
    "BinaryCrossentropy": Nature(("from_logits", "label_smoothing", "name"), (), _OF_CLASSES, MACRO, LOWER),
    "BinaryIoU": Nature(("target_class_ids", "threshold", "name"), (), _OF_CLASSES, MACRO, HIGHER),
    "R2Score": Nature(("class_aggregation", "num_regressors", "name"), (), _OF_CLASSES, MACRO, HIGHER),
    "BinaryCrossEntropy": Nature(("from_logits", "label_smoothing", "name"), (), _OF_CLASSES, MACRO, LOWER),
}

_ONE_HOT = "it reads one-hot labels, and those of a classifier here are numbers"
_REFUSED: dict[str, tuple[str, ...]] = {
    "it is of object detection": (
        "COCOAveragePrecision",
        "COCOAverageRecall",
        "COCOMeanAveragePrecision",
        "COCOMeanAverageRecall",
        "ObjectDetectionConfusionMatrixPlot",
        "ObjectDetectionMaxRecall",
        "ObjectDetectionPrecision",
        "ObjectDetectionPrecisionAtRecall",
        "ObjectDetectionRecall",
        "ObjectDetectionThresholdAtRecall",
    ),
    "it is of segmentation": (
        "IoU",
        "MeanIoU",
        "SemanticSegmentationConfusionMatrix",
        "SemanticSegmentationFalsePositive",
        "SemanticSegmentationTruePositive",
    ),
    "it is of texts": ("Bleu", "Rouge"),
    "it is of rankings, and needs a key of queries": ("MinLabelPosition", "NDCG", "QueryStatistics"),
    "it is of sets of predictions": ("SetMatchPrecision", "SetMatchRecall"),
    "it is of several labels an example": ("MultiLabelConfusionMatrixPlot",),
    "it is of attributions, which the model does not put out": (
        "MeanAbsoluteAttributions",
        "MeanAttributions",
        "TotalAbsoluteAttributions",
        "TotalAttributions",
    ),
    "it compares two models at one threshold, and there may be no earlier one": (
        "BooleanFlipRates",
        "NegToNegFlipRate",
        "NegToPosFlipRate",
        "PosToNegFlipRate",
        "PosToPosFlipRate",
        "SymmetricFlipRate",
        "SymmetricPredictionDifference",
    ),
    "it is of counterfactual predictions": ("FlipCount", "FlipRate"),
    "it compares slices with each other": ("Lift",),
    "it compares the outputs of two models": ("ModelCosineSimilarity",),
    "it is of a feature's examples, and no number": ("FalseNegativeFeatureSampler", "FalsePositiveFeatureSampler"),
    _ONE_HOT: (
        "CategoricalCrossEntropy",
        "CategoricalCrossentropy",
        "CategoricalAccuracy",
        "CategoricalHinge",
        "CosineSimilarity",
        "FBetaScore",
        "OneHotIoU",
        "OneHotMeanIoU",
        "TopKCategoricalAccuracy",
    ),
    "it asks whether a score equals its label": ("Accuracy", "ExactMatch"),
    "it is no metric by itself": ("MeanMetricWrapper", "MeanRelativeError", "MeanTensor", "Metric", "Sum"),
}
REFUSED: dict[str, str] = {name: reason for reason, names in _REFUSED.items() for name in names}
# Names that are often confused, and what is meant.
INSTEAD = {
    "Accuracy": "SparseCategoricalAccuracy",
    "ExactMatch": "SparseCategoricalAccuracy",
    "CategoricalAccuracy": "SparseCategoricalAccuracy",
    "CategoricalCrossentropy": "SparseCategoricalCrossentropy",
    "CategoricalCrossEntropy": "SparseCategoricalCrossentropy",
    "TopKCategoricalAccuracy": "SparseTopKCategoricalAccuracy",
    "FBetaScore": "F1Score",
    "MultiLabelConfusionMatrixPlot": "MultiClassConfusionMatrixPlot",
}

# Names in the results of metrics for which the class's name does not tell it.
_CALLED = {
    "BinaryCrossEntropy": "binary_crossentropy",
    "FairnessIndicators": "fairness_indicators_metrics",
}


def name_in_results(name: str, options: dict[str, Any]) -> str:
    """Returns what TFMA calls a metric: two of one name would be one, the built-in accuracy's included.

    Args:
        name: Of its class.
        options: What was declared.
    """
    if own := options.get("name"):
        return str(own)
    path = options.get("feature_key_path")
    if name == MEAN and isinstance(path, (list, tuple)):
        return f"mean_{'.'.join(map(str, path))}"
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name))
    return _CALLED.get(name, words.lower())


_PART, _COUNT = "a number from 0 to 1", "a whole number, at least 1"
_ONE_OR_MORE = "a number, or a list of numbers"
_RISING = "numbers from the lowest to the highest, each one higher than the other before it"
_PARTS = ["threshold", "recall", "precision", "specificity", "sensitivity", "false_positive_rate", "label_smoothing"]
# Option -> what it takes.
_VALUES = {
    **dict.fromkeys(_PARTS, _PART),
    **dict.fromkeys(("top_k", "k", "num_thresholds", "num_buckets"), _COUNT),
    "thresholds": _ONE_OR_MORE,
    "name": "text",
    "class_id": "a label: a whole number, at least 0",
    "from_logits": "true or false",
    "curve": "one of ROC, PR",
    "summation_method": "one of interpolation, minoring, majoring",
}


def find_wrong_options(name: str, options: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Finds values that an option does not take.

    Args:
        name: Of the metric, one of METRICS.
        options: What was declared; those that it does not have are passed over.

    Yields:
        The option, its value, and what was expected.
    """
    for option, value in options.items():
        expected = _VALUES.get(option) if option in METRICS[name].options else None
        if expected and value is not None and not _fits(expected, value):
            yield option, value, expected
        elif option == "thresholds" and name.startswith("AUC") and not _rises(value):
            # With falling thresholds the area is negative.
            yield option, value, _RISING


def _rises(value: Any) -> bool:
    return not isinstance(value, (list, tuple)) or list(value) == sorted(set(value))


def _fits(expected: str, value: Any) -> bool:
    if expected == "text":
        return isinstance(value, str) and bool(value.strip())
    if expected.startswith("one of "):
        return value in expected.removeprefix("one of ").split(", ")
    if isinstance(value, bool) or expected == "true or false":
        return isinstance(value, bool) and expected == "true or false"
    if expected == _ONE_OR_MORE:
        values = value if isinstance(value, (list, tuple)) and value else [value]
        return all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values)
    if expected == _PART:
        return isinstance(value, (int, float)) and 0 <= value <= 1
    return isinstance(value, int) and value >= (1 if expected == _COUNT else 0)
