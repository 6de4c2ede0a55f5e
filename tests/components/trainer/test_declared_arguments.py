"""A Trainer, or Tuner, for anybody's pipeline that is given what only a declaration can say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.components.trainer.test_settings import channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.tuner import Tuner
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

# What to do in place of each.
TECHNIQUES: dict[str, tuple[Any, str]] = {
    "gradient_accumulation": (4, "remove it, and accumulate in your own step"),
    "precision": ("mixed_bfloat16", "call tf.keras.mixed_precision.set_global_policy in your code"),
    "xla": (True, "wrap the step in tf.function(jit_compile=True) in your code"),
    "sync_every": (4, "average the weights in your own loop"),
    "model_parallel": ({"devices": ["cpu:0", "cpu:1"], "layers": {"a": 1}}, "write `with tf.device(…)` around the"),
    "pipeline_parallel": ({"stages": 2, "microbatches": 2}, "write `with tf.device(…)` around the layers"),
}


def make(**given: Any) -> dict[str, Any]:
    return Trainer(**channels(), **{"trainer_fn": "no_such.trainer_fn", **given}).exec_properties


@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.parametrize("function", ["trainer_fn", "run_fn"])
def test_a_technique_of_the_built_in_step_is_refused_with_the_reason_and_what_to_do(name, function):
    value, todo = TECHNIQUES[name]
    with pytest.raises(DeclarationError, match=re.escape(f"Trainer({name}=…) has 1 problem")) as found:
        make(**{"trainer_fn": None, function: "no_such.function", name: value})
    said = str(found.value)
    assert f"\n  {name}" in said
    assert "a module file's trainer_fn or run_fn " in said
    assert todo in said
    assert "trainer.path to keras" not in said


def test_each_entry_of_the_section_is_known_and_its_default_asks_for_nothing():
    # Others are parameters.
    own = ("module_file", "warm_start", "threads", "gpu", "onednn", "profile", "distribution")
    defaults = {name: field.get_default() for name, field in TrainerSection.__fields__.items() if name not in own}
    assert make(**defaults) == make()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"train_steps": 10, "xla": True}, "say train_args=trainer_pb2.TrainArgs(num_steps=…)"),
        ({"optimizer": {"name": "sgd"}}, "the function that is called decides it by itself"),
        ({"stall_timeout": 5}, "settings=Settings(stall_timeout=…)"),
        ({"precision": "float17"}, "unknown value"),
        ({"gradient_accumulation": 0}, "out of range"),
        ({"augment": object()}, "Trainer(augment=…): augment is an object, builtins.object"),
    ],
)
def test_other_entries_are_told_by_what_takes_their_place(given, told):
    with pytest.raises(DeclarationError, match=re.escape(told)):
        make(**given)


def test_a_tuner_says_the_same_and_a_name_of_nothing_is_pythons_own_error():
    with pytest.raises(DeclarationError, match=re.escape("Tuner(xla=…) has 1 problem")):
        Tuner(**channels(), trainer_fn="no_such.trainer_fn", tune={"ranges": {"units": [1, 2]}}, xla=True)
    with pytest.raises(TypeError, match=re.escape("Trainer.__init__() got an unexpected keyword argument 'exampels'")):
        make(exampels=None)


def test_beside_a_declaration_it_is_said_in_one_place():
    with pytest.raises(DeclarationError, match="in one place"):
        make(xla=True, settings=Settings(declaration={"trainer": {"model": "mnist_cnn", "train_steps": 1}}))
