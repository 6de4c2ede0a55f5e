"""What a component is given as `settings` is checked when it is made, and what a task restores is not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.test_settings import channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.tuner import Tuner
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


def make(component: type, settings: Any) -> Settings:
    tune = {"tune": {"ranges": {"units": [1, 2]}}} if component is Tuner else {}
    made = component(**channels(), trainer_fn="no_such.trainer_fn", settings=settings, **tune)
    return Settings.of(made.exec_properties)


@pytest.mark.parametrize(
    ("given", "told", "todo"),
    [
        ({"start_timeout": "5 min"}, "start_timeout: 5 min", "give a number"),
        ({"start_timeout": None}, "start_timeout", "a number, more than 0"),
        ({"start_timeout": object()}, "is an object, builtins.object", "a number of seconds"),
        ({"stall_timeout": -1}, "stall_timeout: -1", "more than 0, at most 2,592,000"),
        ({"stall_timeout": float("inf")}, "stall_timeout", "not finite"),
        ({"path": "kears"}, "path: kears", "did you mean `keras`?"),
        ({"path": ["keras"]}, "path", "estimator, run_fn, keras, keras_custom_loop"),
        ({"image_shape": "abc"}, "image_shape: abc", "height, width, channels"),
        ({"image_shape": (28, 28)}, "image_shape", "the list has 2 items"),
        ({"label_names": "abc"}, "label_names: abc", "the names of the classes"),
        ({"source": 3}, "source: 3", "create_pipeline fills it"),
        ({"declared": ("a", 1)}, "declared", "item 2"),
        ({"distribution_section": {"train": {"stratgy": "mirrored"}}}, "train.stratgy", "did you mean `strategy`?"),
        ({"distribution_section": "mirrored"}, "is 'mirrored'", "dict"),
        ({"distribution_section": {"train": {"strategy": "mirrored", "workers": 2}}}, "train.workers: 2", "no workers"),
        ({"warm_start_section": {"checkpint": "x"}}, "warm_start.checkpint", "did you mean `checkpoint`?"),
        ({"runtime_section": {"threads": {"intra": 2}}}, "threads.intra", "did you mean `intra_op`?"),
        ({"declaration": {"name": "digits"}}, "is an object, builtins.dict", "let create_pipeline fill it"),
        ({"declaration": {"trainer": {"modle": "mnist_cnn"}}}, "trainer.modle", "did you mean `model`?"),
        ({"declaration": load("digits").declaration}, "is an object", "let create_pipeline fill it"),
    ],
)
def test_a_field_that_no_task_could_use_is_refused(given, told, todo):
    (name,) = given
    for component in (Trainer, Tuner):
        with pytest.raises(DeclarationError) as refused:
            make(component, Settings(**given))
        text = str(refused.value)
        assert text.startswith(f"{component.__name__}(settings=Settings({name}=…))")
        assert told in text
        assert todo in text
        assert "expected: " in text
        assert "YAML" not in text
        assert "trainer." not in text or name == "declaration"


@pytest.mark.parametrize("given", [{"start_timeout": 3}, "stall", 3.0, True, {}, Settings])
def test_what_are_no_settings_is_refused(given):
    for component in (Trainer, Tuner):
        with pytest.raises(DeclarationError) as refused:
            make(component, given)
        assert str(refused.value).startswith(f"{component.__name__}(settings=…) is ")
        assert "from tfx_estimator import Settings" in refused.value.todo


def test_numbers_of_numpy_are_plain_ones():
    given = Settings(stall_timeout=np.int64(3600), image_shape=(np.int64(4), 4, 1), label_names=["a", "b"])
    for component in (Trainer, Tuner):
        made = make(component, given)
        assert (made.stall_timeout, made.image_shape, made.label_names) == (3600, (4, 4, 1), ("a", "b"))


def test_right_settings_travel_as_they_are():
    given = Settings(
        start_timeout=3,
        stall_timeout=0.5,
        distribution_section={"train": {"strategy": "mirrored", "devices": {"cpu": 2}}, "max_restarts": 0},
        runtime_section={"onednn": False},
        image_shape=(28, 28, 1),
        label_names=("a", "b"),
        path="estimator",
    )
    for component in (Trainer, Tuner):
        made = make(component, given)
        assert (made.start_timeout, made.stall_timeout, made.image_shape) == (3, 0.5, (28, 28, 1))
        assert made.distribution == given.distribution
        assert made.runtime == given.runtime
        assert make(component, None).stall_timeout == 600.0
    declared = json.loads(load("digits").declaration.to_json())
    assert make(Trainer, Settings(declaration=declared, path="estimator")).trainer == load("digits").declaration.trainer


def test_a_task_restores_what_an_earlier_version_wrote():
    # Else a change of a bound would end what goes on.
    assert Settings.from_dict({"start_timeout": -1.0, "path": "another"}).path == "another"
