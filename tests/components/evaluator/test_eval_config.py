"""What TFMA is told of a declared evaluator."""

from __future__ import annotations

import pytest

from tfx_estimator.components.evaluator.completion import reads_probabilities
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, Metric

pytestmark = pytest.mark.unit

LABELS = tuple("abcd")


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("value", ["e", 4, -1, 3.0, "4"])
def test_a_slice_by_a_class_that_is_not_there_is_refused(value, held):
    def config(label, names=LABELS):
        own = [Metric(name="ExampleCount", threshold={"lower": 1}, slices=[{"label": label}])] if held else []
        slices = [] if held else [{"label": label}]
        return eval_config(EvaluatorSection(slices=slices, metrics=own), names)

    with pytest.raises(DeclarationError, match=f"evaluator.slices: the data has no class `{value}`"):
        config(value)
    for label in ("d", 3, "3"):
        assert config(label).slicing_specs[-1].feature_values["label"] == "3"
    # Where the names are not known.
    assert config(value, ()).slicing_specs[-1].feature_values["label"] == str(value)


@pytest.mark.parametrize(
    ("names", "given", "label"),
    [
        (tuple("123456789"), 3, 2),
        (tuple("123456789"), "9", 8),
        (("0", "1", "10", "11", "2", "3"), 3, 5),  # of files that list them so
        (("001", "002", "003"), 2, 1),
        # Not all are numbers: what is no name is a label.
        (("7", "8", "A", "B"), 2, 2),
    ],
)
def test_a_number_means_the_class_of_this_name(names, given, label):
    metric = Metric(name="Recall", binarize=[given])
    config = eval_config(EvaluatorSection(slices=[{"label": given}], metrics=[metric]), names)
    assert config.slicing_specs[-1].feature_values["label"] == str(label)
    assert list(config.metrics_specs[-1].binarize.class_ids.values) == [label]


@pytest.mark.parametrize(
    ("thresholds", "reads"),
    [([0, 0.5, 1], True), ([0], False), (0, False), ([-1, 0, 1], False), (0.5, True), (None, True)],
)
def test_thresholds_tell_probabilities_from_logits(thresholds, reads):
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
def test_what_keras_would_compute_of_labels_numbers_is_of_each_class(name, aggregate):
    def found(names, **asked):
        spec = eval_config(EvaluatorSection(metrics=[Metric(name=name, **asked)]), names).metrics_specs[-1]
        return [each.name.removesuffix("_average") for each, _ in spec.aggregate.ListFields()][:1]

    assert found(LABELS) == ([aggregate] if aggregate else [])
    # It is asked for otherwise, or how many classes there are is not known.
    assert found(()) == []
    if name != "SparseTopKCategoricalAccuracy":
        assert found(LABELS, aggregate="micro") == ["micro"]
        assert found(LABELS, binarize="all") == []
