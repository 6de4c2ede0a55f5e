"""`trainer.augment`: what it takes, and what it says of what it does not."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config import Declaration, load

pytestmark = pytest.mark.unit

LIST = """\
  augment:
    - random_flip
    - random_crop: {padding: 2, fill: reflect}
    - cutout:
"""
CROP = {"random_crop": {"padding": 2, "fill": "reflect"}}
LONG = [{"random_flip": {"mode": "horizontal"}}, CROP, {"cutout": {"size": 8}}]


def test_short_and_long_forms_are_one(write, good):
    loaded = load(write(good + LIST))
    assert [operation.dict() for operation in loaded.declaration.trainer.augment] == LONG
    assert loaded.origins["trainer.augment"] == "mine.yaml:8"
    again = load(write(loaded.declaration.to_yaml()))
    assert again.declaration == loaded.declaration == Declaration.from_json(loaded.declaration.to_json())
    overridden = load(write(good), [f"trainer.augment={json.dumps(['random_flip', *LONG[1:]])}"])
    assert overridden.declaration == loaded.declaration
    assert overridden.origins["trainer.augment"] == "--set"


def test_none_is_the_default_and_it_decides_the_model(write, good):
    assert load(write(good)).declaration.trainer.augment == ()
    deciding, operational = load(write(good + LIST)).declaration.trainer.split()
    assert list(deciding["augment"]) == LONG
    assert "augment" not in operational


def test_editors_know_both_forms():
    schema = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text())
    values = {"name": "x", "data": {"dataset": "digits"}}
    jsonschema.validate({**values, "trainer": {"augment": ["random_flip", *LONG, {"cutout": None}]}}, schema)
    for wrong in ("random_flop", {"random_flop": {}}, {"random_crop": {"padding": 0}}, {}, {**LONG[0], **LONG[1]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, "trainer": {"augment": [wrong]}}, schema)


WRONG = {
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


@pytest.mark.parametrize("item", WRONG)
def test_a_wrong_operation_is_told(problems, good, item):
    (problem,) = problems(f"{good}  augment:\n    - {item}\n")
    for part in WRONG[item]:
        assert part in " ".join(problem.split())
    # An item that is none of the list is told with the list.
    assert problem.startswith("mine.yaml:8" if item == "5" else "mine.yaml:9")
