"""Parameters that are protocol buffers: what TFX would take, and leave a part of out, is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import pusher_pb2, trainer_pb2
from tfx.types import Channel, standard_artifacts

from tfx_estimator import DeclarationError, Pusher, Trainer, Tuner

pytestmark = pytest.mark.unit

SERVING = {"filesystem": {"base_directory": "serving"}}


def push(given: Any, **more: Any) -> Any:
    model = Channel(type=standard_artifacts.Model)
    return Pusher(model=model, push_destination=given, **more).exec_properties["push_destination"]


def train(component: type, **given: Any) -> Any:
    tune = {"tune": {"ranges": {"units": [1, 2]}}} if component is Tuner else {}
    examples = Channel(type=standard_artifacts.Examples)
    return component(examples=examples, trainer_fn="no_such.trainer_fn", **given, **tune).exec_properties


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"filesystm": {"base_directory": "serving"}}, 'has no field named "filesystm"'),
        ({"filesystem": {"base_directory": 3}}, "base_directory"),
        ("serving", "Pusher(push_destination=…) is 'serving'"),
        ({}, "Pusher(push_destination=…) is empty"),
        (pusher_pb2.PushDestination(), "Pusher(push_destination=…) is empty"),
        ({"filesystem": {}}, "there this Pusher cannot push"),
        ({"filesystem": {"base_directory": "serving", "versioning": "BY_NAME"}}, "Invalid enum value BY_NAME"),
        (["serving"], "is an object, builtins.list"),
    ],
)
def test_a_destination_that_is_none_is_refused(given, told):
    with pytest.raises(DeclarationError) as refused:
        push(given)
    assert told in str(refused.value)
    assert 'push_destination={"filesystem": {"base_directory": \'serving\'}}' in refused.value.todo
    assert "filesystem.base_directory" in refused.value.expected


def test_a_destination_is_taken_as_tfx_takes_it():
    message = pusher_pb2.PushDestination(filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="serving"))
    assert push(SERVING) == push('{"filesystem": {"base_directory": "serving"}}')
    assert '"base_directory": "serving"' in push(message)
    folder = RuntimeParameter(name="folder", ptype=str)
    assert push(folder) is folder
    assert "folder" in str(push({"filesystem": {"base_directory": folder}}))
    # Of another executor's destination nothing is known here.
    spec = executor_spec.ExecutorClassSpec(type("Elsewhere", (executor_spec.ExecutorClassSpec,), {}))
    assert push({}, custom_executor_spec=spec) == {}


@pytest.mark.parametrize("component", [Trainer, Tuner])
@pytest.mark.parametrize("name", ["train_args", "eval_args"])
def test_a_length_that_is_none_is_refused(component, name):
    kind = {"train_args": trainer_pb2.TrainArgs, "eval_args": trainer_pb2.EvalArgs}[name]
    for given, told in (
        ({"num_step": 10}, 'has no field named "num_step"'),
        ({"num_steps": "ten"}, "num_steps"),
        (10, "is an object, builtins.int"),
        ("10", "is '10'"),
    ):
        with pytest.raises(DeclarationError) as refused:
            train(component, **{name: given})
        assert str(refused.value).startswith(f"{component.__name__}({name}=…)")
        assert told in str(refused.value)
        assert f"say {name}=trainer_pb2.{kind.__name__}(num_steps=…)" in refused.value.todo
    for given in ({"num_steps": 10}, kind(num_steps=10)):
        assert '"num_steps": 10' in train(component, **{name: given})[name]
