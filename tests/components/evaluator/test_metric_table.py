"""What `validate` knows of metrics without TensorFlow is what the installed TFMA and Keras have."""

from __future__ import annotations

import inspect

import pytest

from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.evaluator import BUILT_IN, EvaluatorSection, Metric
from tfx_estimator.pipeline.config.metric_table import INSTEAD, METRICS, REFUSED, name_in_results
from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.run.summary import ACCURACY

LABELS = tuple("abcd")
VALUES = {"recall": 0.5, "precision": 0.5, "specificity": 0.5, "sensitivity": 0.5, "thresholds": 0.5}
VALUES["false_positive_rate"] = 0.5
FEW = ("AUC", "Precision", "MaxRecall", "ConfusionMatrixAtThresholds", "Poisson", "CalibrationPlot")
# Of this stack.
HERE = tuple(name for name in METRICS if not stacks.lacks_metric(name))


@pytest.fixture(scope="module")
def installed():
    """Options of each metric, and those without a default."""
    from tensorflow_model_analysis.metrics import metric_types
    from tensorflow_model_analysis.utils.keras_lib import tf_keras

    keras = {name: getattr(tf_keras.metrics, name) for name in dir(tf_keras.metrics)}
    keras = {name: each for name, each in keras.items() if inspect.isclass(each)}
    classes = {name: each for name, each in keras.items() if issubclass(each, tf_keras.metrics.Metric)}
    found = {}
    for name, each in {**classes, **metric_types.registered_metrics()}.items():
        if "test" in each.__module__:
            continue
        parameters = list(inspect.signature(each.__init__).parameters.values())[1:]
        options = [p for p in parameters if p.name not in ("dtype", "kwargs")]
        required = {p.name for p in options if p.default is inspect.Parameter.empty}
        found[name] = ({p.name for p in options}, required)
    return found


def test_every_metric_is_known_with_its_options(installed):
    assert METRICS.keys().isdisjoint(REFUSED)
    assert installed.keys() <= {*HERE, *REFUSED}
    told = {name: (set(METRICS[name].options), set(METRICS[name].required)) for name in HERE}
    assert told == {name: installed[name] for name in HERE}
    assert INSTEAD.keys() <= REFUSED.keys()
    assert set(INSTEAD.values()) <= METRICS.keys()


def test_every_metric_is_called_in_the_results_as_is_told():
    from tensorflow_model_analysis.metrics import metric_specs

    from tfx_estimator.components.evaluator.eval_config import eval_config

    for name in HERE:
        nature = METRICS[name]
        options = {option: VALUES.get(option, ["features", "label"]) for option in nature.required}
        for own in ({}, {"name": "own"}):
            metric = Metric(name=name, options={**options, **own}, threshold={"lower": 0.0})
            config = eval_config(EvaluatorSection(metrics=[metric]), LABELS)
            if not metric.is_built_in:
                # They come first.
                del config.metrics_specs[0].metrics[: len(BUILT_IN)]
            found = metric_specs.to_computations(list(config.metrics_specs), config)
            keys = {key.name.partition("/")[0] for each in found for key in each.keys}
            assert name_in_results(name, dict(metric.options)) in keys, name
            assert not own or "own" in keys
    assert name_in_results("SparseCategoricalAccuracy", {}) == ACCURACY


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("value", ["e", 4, -1, 3.0, "4"])
def test_a_slice_by_a_class_that_is_not_there_is_refused(value, held):
    from tfx_estimator.components.evaluator.eval_config import eval_config

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
    ("names", "said", "label"),
    [
        (tuple("123456789"), 3, 2),
        (tuple("123456789"), "9", 8),
        (("0", "1", "10", "11", "2", "3"), 3, 5),  # of files that list them so
        (("001", "002", "003"), 2, 1),
        # Not all are numbers: what is no name is a label.
        (("7", "8", "A", "B"), 7, 0),
        (("7", "8", "A", "B"), 2, 2),
    ],
)
def test_a_number_means_the_class_of_this_name(names, said, label):
    from tfx_estimator.components.evaluator.eval_config import eval_config

    metric = Metric(name="Recall", binarize=[said])
    config = eval_config(EvaluatorSection(slices=[{"label": said}], metrics=[metric]), names)
    assert config.slicing_specs[-1].feature_values["label"] == str(label)
    assert list(config.metrics_specs[-1].binarize.class_ids.values) == [label]


def test_a_number_means_no_label_where_the_names_are_numbers():
    from tfx_estimator.components.evaluator.eval_config import eval_config

    for said in (0, "0"):
        with pytest.raises(DeclarationError, match="the data has no class `0`"):
            eval_config(EvaluatorSection(slices=[{"label": said}]), tuple("123456789"))


@pytest.mark.parametrize(
    ("thresholds", "reads"),
    [([0, 0.5, 1], True), ([0], False), (0, False), ([-1, 0, 1], False), (0.5, True), (None, True)],
)
def test_thresholds_tell_probabilities_from_logits(thresholds, reads):
    from tfx_estimator.components.evaluator.completion import reads_probabilities
    from tfx_estimator.components.evaluator.eval_config import eval_config

    options = {} if thresholds is None else {"thresholds": thresholds}
    metrics = [
        Metric(name="AUC"),
        Metric(name="ConfusionMatrixAtThresholds" if options else "Precision", options=options),
    ]
    assert reads_probabilities(eval_config(EvaluatorSection(metrics=metrics), LABELS)) is reads


def test_a_class_that_is_named_twice_is_refused():
    from tfx_estimator.components.evaluator.eval_config import eval_config

    for twice in (["a", 0], ["d", 3]):
        section = EvaluatorSection(metrics=[Metric(name="Recall", binarize=twice)])
        with pytest.raises(DeclarationError, match=r"metrics\.0\.binarize: the label [03] is named more than once"):
            eval_config(section, LABELS)


@pytest.mark.parametrize("names", [FEW, pytest.param(HERE, marks=pytest.mark.long)], ids=["few", "all"])
def test_what_the_table_allows_can_be_measured(names):
    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.evaluator.trial import try_metrics

    for name in names:
        nature = METRICS[name]
        options = {option: VALUES.get(option, ["features", "label"]) for option in nature.required}
        for form in ("", *nature.forms):
            asked = {"binarize": {"binarize": "all"}, "top_k": {"top_k": [2]}}.get(form, {"aggregate": form or None})
            # TFMA would look for a weighted mean in vain.
            plain = nature.is_number and form != "weighted_macro" and name != "FairnessIndicators"
            threshold = {"threshold": {"lower": 0.0}} if plain else {}
            metric = Metric(name=name, options=options, **asked, **threshold)
            try_metrics(eval_config(EvaluatorSection(metrics=[metric]), LABELS), len(LABELS))
