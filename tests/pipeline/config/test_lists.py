"""Lists of operations, metrics and slices: `trainer.augment`, and `evaluator`; in short and long forms."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.evaluator import Slice, parse_held, parse_slice

LIST = """\
  augment:
    - random_flip
    - random_crop: {padding: 2, fill: reflect}
    - cutout:
"""
CROP = {"random_crop": {"padding": 2, "fill": "reflect"}}
LONG = [{"random_flip": {"mode": "horizontal"}}, CROP, {"cutout": {"size": 8}}]


def test_short_and_long_forms_of_operations_are_one(write, good):
    loaded = load(write(good + LIST))
    assert [operation.dict() for operation in loaded.declaration.trainer.augment] == LONG
    assert loaded.origins["trainer.augment"] == "mine.yaml:8"
    again = load(write(loaded.declaration.to_yaml()))
    assert again.declaration == loaded.declaration == Declaration.from_json(loaded.declaration.to_json())
    overridden = load(write(good), [f"trainer.augment={json.dumps(['random_flip', *LONG[1:]])}"])
    assert overridden.declaration == loaded.declaration
    assert overridden.origins["trainer.augment"] == "--set"


def test_augment_is_empty_by_default_and_decides_the_model(write, good):
    assert load(write(good)).declaration.trainer.augment == ()
    deciding, operational = load(write(good + LIST)).declaration.trainer.split()
    assert list(deciding["augment"]) == LONG
    assert "augment" not in operational


WRONG_OPERATIONS = {
    "random_flop": ["trainer.augment.0.random_flop", "did you mean `random_flip`?"],
    "RandomFlip": ["unknown key `RandomFlip`", "did you mean `random_flip`?"],
    "{padding: 4}": ["did you mean `trainer.augment.random_crop.padding`?"],
    "{random_crop: {paddin: 4}}": ["trainer.augment.0.random_crop.paddin: 4", "did you mean `padding`?"],
    "{random_crop: {fill: mirror}}": ["unknown value", "one of zero, reflect"],
    "{random_crop: {padding: 0}}": ["out of range", "a whole number, at least 1"],
    "{random_crop: 4}": ["trainer.augment.0.random_crop: 4", "a section with some of the keys padding, fill"],
    "{random_rotation: {degrees: 270}}": ["a number, more than 0, at most 180"],
    "5": ["item 1: a whole number is no section"],
}


@pytest.mark.parametrize("item", WRONG_OPERATIONS)
def test_a_wrong_operation_is_refused(problems, good, item):
    (problem,) = problems(f"{good}  augment:\n    - {item}\n")
    for part in WRONG_OPERATIONS[item]:
        assert part in " ".join(problem.split())
    # An item of a wrong kind is reported at the list's line.
    assert problem.startswith("mine.yaml:8" if item == "5" else "mine.yaml:9")


SECTION = """\
evaluator:
  slices: [label, {label: 3}]
  metrics:
    - AUC
    - {name: Precision, binarize: [3, seven], threshold: {lower: 0.9}, slices: [overall, label]}
    - {name: F1Score, aggregate: macro, options: {thresholds: 0.4}, change_threshold: {absolute: -0.02}}
    - {name: Recall, binarize: all}
"""


def test_short_and_long_forms_of_metrics_are_one(write, good):
    loaded = load(write(good + SECTION))
    section = loaded.declaration.evaluator
    assert [metric.name for metric in section.metrics] == ["AUC", "Precision", "F1Score", "Recall"]
    # Fields without a value are not shown.
    assert section.metrics[0].dict() == {"name": "AUC"}
    assert section.metrics[1].binarize == (3, "seven")
    assert loaded.origins["evaluator.metrics"] == "mine.yaml:10"
    again = load(write(loaded.declaration.to_yaml()))
    assert again.declaration == loaded.declaration == Declaration.from_json(loaded.declaration.to_json())
    overridden = load(write(good), ["evaluator.metrics=[AUC]"])
    assert overridden.declaration.evaluator.metrics == section.metrics[:1]


def test_slices_mean_features_crosses_and_values():
    assert parse_slice("label") == parse_slice(["label"]) == parse_slice({"cross": ["label"]}) == Slice(("label",))
    assert parse_slice(["label", "ink"]).features == ("label", "ink")
    assert parse_slice({"cross": ["ink"], "label": 3}) == Slice(("ink",), (("label", 3),))
    assert parse_held([]) == parse_held(["overall"]) == [Slice()]
    held = parse_held(["overall", {"cross": ["ink"], "label": 3}])
    assert [*map(str, held)] == ["overall", "ink x label 3"]


def test_slices_may_use_any_feature_of_a_users_preprocessing_fn(write, good):
    write("def own(inputs): pass\n", "own.py")
    text = f"{good}transform: {{preprocessing_fn: 'own:own'}}\nevaluator: {{slices: [[label, ink]]}}\n"
    assert load(write(text)).declaration.evaluator.slices == (("label", "ink"),)


def test_the_json_schema_accepts_both_forms():
    schema = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text())
    values = {"name": "x", "data": {"dataset": "digits"}, "trainer": {}}
    metrics = ["AUC", {"name": "Precision", "binarize": "all"}, {"name": "Recall", "binarize": [1, "two"]}]
    slices = ["label", ["label", "ink"], {"label": 3}]
    right = {"evaluator": {"metrics": metrics, "slices": slices}}
    jsonschema.validate({**values, "trainer": {"augment": ["random_flip", *LONG, {"cutout": None}]}, **right}, schema)
    operations = ("random_flop", {"random_flop": {}}, {"random_crop": {"padding": 0}}, {}, {**LONG[0], **LONG[1]})
    sections = ({"metrics": [{"binarize": "all"}]}, {"metrics": [{"name": "AUC", "clases": 1}]}, {"slices": [3]})
    wrong = [*({"trainer": {"augment": [each]}} for each in operations), *({"evaluator": each} for each in sections)]
    for each in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, **each}, schema)


WRONG_METRICS = {
    "{name: Recall, top_k: [0]}": ["out of range"],
    "{name: Calibration, change_threshold: {absolute: 1}}": ["add direction: higher_is_better, or lower_is_better"],
    "{name: Recall, slices: [label]}": ["there is none"],
    "{name: Recall, binarize: []}": ["evaluator.metrics.0.binarize: []", "it names no class"],
    "{name: Recall, binarize: 5}": ["metrics.0.binarize: 5", "to do: write a value of that kind"],
    "{name: Recall, threshold: {lower: 1}, slices: [lable]}": ["evaluator.metrics.0.slices.0: lable", "`label`?"],
    "{threshold: {lower: 1}}": ["evaluator.metrics.0.name", "this key is missing"],
    "5": ["a whole number is no section"],
}


@pytest.mark.parametrize("item", WRONG_METRICS)
def test_a_wrong_metric_is_refused(problems, good, item):
    (problem,) = problems(f"{good}evaluator:\n  metrics:\n    - {item}\n")
    for part in WRONG_METRICS[item]:
        assert part in " ".join(problem.split())
