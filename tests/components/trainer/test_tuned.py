"""Tuned values in the place of declared ones."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.components.trainer.settings import SETTINGS_KEY
from tfx_estimator.components.trainer.tuned import read_values, with_hyperparameters, write_config
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit


@pytest.fixture
def tuned(tmp_path):
    """Makes a HyperParameters artifact of such values."""
    from tfx.types import standard_artifacts

    def make(values):
        artifact = standard_artifacts.HyperParameters()
        artifact.uri = str(tmp_path / "best")
        write_config(artifact.uri, {"space": [], "values": values})
        assert read_values(artifact.uri) == values
        return [artifact]

    return make


def test_they_take_the_place_of_the_declared_ones(settings, tuned):
    declared = settings({"optimizer": {"learning_rate": 0.05}})
    values = {"trainer.optimizer.learning_rate": 0.2, "trainer.train_steps": 7, "units": 3, "tuner/epochs": 2}
    properties = {"train_args": json.dumps({"num_steps": 60, "splits": ["train"]}), **declared.to_properties()}
    found, changed = with_hyperparameters(declared, properties, tuned(values))
    assert found.trainer is not None
    assert (found.trainer.optimizer.learning_rate, found.trainer.train_steps) == (0.2, 7)
    assert found.trainer.global_batch_size == declared.trainer.global_batch_size
    assert json.loads(changed["train_args"]) == {"num_steps": 7, "splits": ["train"]}
    # By which the training folder is found.
    assert json.loads(changed[SETTINGS_KEY])["declaration"]["trainer"]["train_steps"] == 7
    assert declared.trainer.optimizer.learning_rate == 0.05


def test_an_item_a_key_and_a_whole_list_have_a_place_too(settings, tuned):
    declared = settings({"augment": ["random_flip", {"random_crop": {"padding": 2}}]})
    values = {
        "trainer.augment.1.random_crop.padding": 3,
        "trainer.class_weights.8": 2.5,
        "trainer.optimizer": {"name": "adam"},
        "trainer.keep_best": "accuracy",
    }
    found, _ = with_hyperparameters(declared, {"train_args": "{}"}, tuned(values))
    assert [each.dict() for each in found.trainer.augment] == [
        {"random_flip": {"mode": "horizontal"}},
        {"random_crop": {"padding": 3, "fill": "zero"}},
    ]
    assert found.trainer.class_weights[8] == 2.5
    assert found.trainer.optimizer.name == "adam"
    # What is short in a declaration is written out, for whoever reads the values themselves.
    assert found.declaration["trainer"]["keep_best"]["metric"] == "accuracy"
    again, _ = with_hyperparameters(found, {"train_args": "{}"}, tuned({"trainer.augment": []}))
    assert again.trainer.augment == ()
    assert len(declared.trainer.augment) == 2


def test_without_a_tuner_or_a_declaration_nothing_changes(settings, tuned):
    from tfx_estimator.components.trainer.settings import Settings

    declared, properties = settings(), {"train_args": "{}"}
    assert with_hyperparameters(declared, properties, []) == (declared, properties)
    assert with_hyperparameters(declared, properties, tuned({"units": 3})) == (declared, properties)
    own = Settings()
    assert with_hyperparameters(own, properties, tuned({"trainer.seed": 3})) == (own, properties)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"trainer.seed.x": 3}, "trainer.seed holds 42, and has no keys of its own"),
        ({"trainer.augment.0.cutout.size": 3}, r"trainer.augment holds \[\], and has no item 0"),
        ({"trainer.optimizer.learning_rate": 1e30}, "trainer.optimizer.learning_rate: the value is out of range"),
        (
            {"trainer.optimizer.warmup_steps": 50, "trainer.train_steps": 40},
            r"with these values, trainer.optimizer.warmup_steps: .*",
        ),
    ],
)
def test_values_that_have_no_place_or_do_not_go_together_are_refused(settings, tuned, values, said):
    with pytest.raises(DeclarationError, match=said):
        with_hyperparameters(settings(), {"train_args": "{}"}, tuned(values))
