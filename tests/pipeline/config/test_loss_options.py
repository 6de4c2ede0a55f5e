"""`trainer.label_smoothing` and `trainer.class_weights`: what they take, and what they say of what they do not."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.class_weights import weights_by_label
from tfx_estimator.pipeline.config.image_folder import find_label, in_order

pytestmark = pytest.mark.unit

SCHEMA = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text())


def weights_of(declaration: Declaration, *names: str):
    section = Settings(declaration=declaration.dict(), label_names=names).trainer
    assert section is not None
    return section.class_weights


@pytest.mark.parametrize(
    ("declared", "by_label"),
    [("[1, 2, 0.5]", (1.0, 2.0, 0.5)), ("{bird: 3}", (1.0, 3.0, 1.0)), ("{cat: 0, dog: 2.5}", (0.0, 1.0, 2.5))],
)
def test_weights_are_by_label_or_by_name(write, good, declared, by_label):
    # Of a data set whose classes are not known yet.
    good = good.replace("dataset: mnist", "dataset: pets")
    loaded = load(write(good + f"  class_weights: {declared}\n  label_smoothing: 0.1\n"))
    assert weights_of(loaded.declaration, "cat", "bird", "dog") == by_label
    assert load(write(loaded.declaration.to_yaml())).declaration == loaded.declaration
    assert Declaration.from_json(loaded.declaration.to_json()) == loaded.declaration
    jsonschema.validate(json.loads(loaded.declaration.to_json()), SCHEMA)


def test_weights_that_do_not_fit_the_classes_are_refused_once_these_are_known(write, good):
    good = good.replace("dataset: mnist", "dataset: pets")
    three = load(write(good + "  class_weights: [1, 2, 3]\n")).declaration
    with pytest.raises(DeclarationError, match=r"trainer.class_weights: 3 weights for 2 classes"):
        weights_of(three, "cat", "dog")
    named = load(write(good + "  class_weights: {dug: 2}\n")).declaration
    with pytest.raises(DeclarationError, match=r"no class `dug`[\s\S]*did you mean `dog`"):
        weights_of(named, "cat", "dog")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("label_smoothing: 1", ["out of range", "less than 1"]),
        ("class_weights: 2", ["class_weights: 2", "a whole number is no list and a whole number is no mapping"]),
        ("class_weights: balnced", ["did you mean `balanced`?"]),
        ("class_weights: [1, x]", ["item 2: text is no number", "a list, each a number, or a mapping, each value a"]),
        ("class_weights: {'3': x}", ["3: text is no number"]),
        ("class_weights: [1, -1]", ["-1.0 is no weight", "from 0 to 1,000,000"]),
        (f"class_weights: {json.dumps(dict.fromkeys('0123456789', 0))}", ["no example would count", "above 0"]),
        ("class_weights: {'33': 2}", ["no class `33`", "did you mean `3`?"]),
    ],
)
def test_bad_ones(refuse, good, line, parts):
    message = refuse(good.replace("dataset: mnist", "dataset: digits") + f"  {line}\n")
    assert "mine.yaml:8  trainer." in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("dataset", "weights", "said"),
    [
        ("mnist", "{'10': 2}", "no class `10`"),
        ("mnist", "[1, 2]", "2 weights for 10 classes"),
        ("mnist", "{'9': 2}", ""),
        ("cifar10", "{frg: 2}", "did you mean `frog`?"),
        ("cifar10", "[1, 2]", "one for each label, in this order: airplane, automobile"),
        ("cifar10", "{frog: 2, ship: 3}", ""),
        # As TFDS names them where its file of names is missing.
        ("cifar10", "{'6': 2}", ""),
        ("cifar10", "{frog: 2, '6': 2}", "no class `6`"),
        ("fashion_mnist", "{any: 2}", ""),
    ],
)
def test_the_classes_of_known_data_sets_are_known(refuse, write, good, dataset, weights, said):
    text = good.replace("dataset: mnist", f"dataset: {dataset}") + f"  class_weights: {weights}\n"
    if said:
        assert said in refuse(text)
    else:
        assert load(write(text)).declaration.trainer.class_weights


def test_the_classes_of_an_image_folder_are_known(refuse, good, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").touch()
    text = good.replace("dataset: mnist", "dataset: ./photos")
    assert "no class `dg`" in refuse(text + "  class_weights: {dg: 2}\n")
    splits = ["data.splits.train=train[:50%]", "data.splits.eval=train[50%:]"]
    loaded = load("mine.yaml", ["trainer.class_weights={dog: 2}", *splits])
    assert loaded.declaration.trainer.class_weights == {"dog": 2.0}


def test_numbers_are_in_their_order_and_names_in_that_of_the_alphabet():
    assert in_order(["10", "2", "1", "02", "9" * 5000, "2"]) == ["1", "02", "2", "10", "9" * 5000]
    assert in_order(["10", "2", "a"]) == ["10", "2", "a"]


def test_a_class_is_meant_by_each_form_of_its_name():
    names = in_order(["cafe\u0301", "dog"])
    assert find_label("caf\u00e9", names) == find_label("cafe\u0301", names) == find_label(0, names) == 0
    assert weights_by_label({"cafe\u0301": 2.0}, names) == (2.0, 1.0)
