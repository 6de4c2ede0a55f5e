"""The EvalConfig that a declared evaluator becomes."""

from __future__ import annotations

import pytest

from tfx_estimator.components.evaluator.completion import reads_probabilities
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, Metric
from tfx_estimator.pipeline.config.task import CLASSES, Task

LABELS = Task(CLASSES, "label", tuple("abcd"))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("value", ["e", 4, -1, 3.0, "4"])
def test_a_slice_by_an_unknown_class_is_refused(value, held):
    def config(label, names=LABELS.names):
        own = [Metric(name="ExampleCount", threshold={"lower": 1}, slices=[{"label": label}])] if held else []
        slices = [] if held else [{"label": label}]
        return eval_config(EvaluatorSection(slices=slices, metrics=own), Task(CLASSES, "label", names))

    with pytest.raises(DeclarationError, match=f"evaluator.slices: the data has no class `{value}`"):
        config(value)
    for label in ("d", 3, "3"):
        assert config(label).slicing_specs[-1].feature_values["label"] == "3"
    # Without known class names.
    assert config(value, ()).slicing_specs[-1].feature_values["label"] == str(value)


@pytest.mark.parametrize(
    ("names", "value", "label"),
    [
        (tuple("123456789"), 3, 2),
        (tuple("123456789"), "9", 8),
        (("0", "1", "10", "11", "2", "3"), 3, 5),  # files sorted by name
        (("001", "002", "003"), 2, 1),
        # Not all names are numbers: a value that is no name is a label.
        (("7", "8", "A", "B"), 2, 2),
    ],
)
def test_a_number_means_the_class_of_this_name(names, value, label):
    metric = Metric(name="Recall", binarize=[value])
    config = eval_config(EvaluatorSection(slices=[{"label": value}], metrics=[metric]), Task(CLASSES, "label", names))
    assert config.slicing_specs[-1].feature_values["label"] == str(label)
    assert list(config.metrics_specs[-1].binarize.class_ids.values) == [label]


@pytest.mark.parametrize(
    ("thresholds", "reads"),
    [([0, 0.5, 1], True), ([0], False), (0, False), ([-1, 0, 1], False), (0.5, True), (None, True)],
)
def test_the_thresholds_depend_on_probabilities_or_logits(thresholds, reads):
    options = {} if thresholds is None else {"thresholds": thresholds}
    metrics = [
        Metric(name="AUC"),
        Metric(name="ConfusionMatrixAtThresholds" if options else "Precision", options=options),
    ]
    assert reads_probabilities(eval_config(EvaluatorSection(metrics=metrics), LABELS)) is reads


def test_a_class_that_is_named_twice_is_refused():
    section = EvaluatorSection(metrics=[Metric(name="Recall", binarize=["d", 3])])
    with pytest.raises(DeclarationError, match=r"metrics\.0\.binarize: the label 3 is named more than once"):
        eval_config(section, LABELS)


@pytest.mark.parametrize(
    ("name", "aggregate"),
    [
        ("RootMeanSquaredError", "macro"),
        ("BinaryCrossEntropy", "macro"),
        ("AUC", ""),
        ("SparseTopKCategoricalAccuracy", ""),
    ],
)
def test_metrics_that_keras_would_compute_from_label_numbers_are_binarized_by_class(name, aggregate):
    def found(names, **options):
        section = EvaluatorSection(metrics=[Metric(name=name, **options)])
        spec = eval_config(section, Task(CLASSES, "label", names)).metrics_specs[-1]
        return [each.name.removesuffix("_average") for each, _ in spec.aggregate.ListFields()][:1]

    assert found(LABELS.names) == ([aggregate] if aggregate else [])
    # Another aggregation is declared, or the number of classes is unknown.
    assert found(()) == []
    if name != "SparseTopKCategoricalAccuracy":
        assert found(LABELS.names, aggregate="micro") == ["micro"]
        assert found(LABELS.names, binarize="all") == []
