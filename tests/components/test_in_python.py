"""Errors of a training in a user's own pipeline name arguments; and parameters that are protocol buffers."""

from __future__ import annotations

from typing import Any

import pytest
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import pusher_pb2, trainer_pb2
from tfx.types import Channel, standard_artifacts

from tests.refusals import refused
from tfx_estimator import DeclarationError, Pusher, Trainer, Tuner
from tfx_estimator.components.in_python import TUNER, reword
from tfx_estimator.pipeline.base.errors import TaskStalledError

SERVING = {"filesystem": {"base_directory": "serving"}}


def push(given: Any, **more: Any) -> Any:
    model = Channel(type=standard_artifacts.Model)
    return Pusher(model=model, push_destination=given, **more).exec_properties["push_destination"]


def train(component: type, **given: Any) -> Any:
    tune = {"tune": {"ranges": {"units": [1, 2]}}} if component is Tuner else {}
    examples = Channel(type=standard_artifacts.Examples)
    return component(examples=examples, trainer_fn="no_such.trainer_fn", **given, **tune).exec_properties


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"filesystm": {"base_directory": "serving"}}, 'has no field named "filesystm"'),
        ("serving", "Pusher(push_destination=…) is 'serving'"),
        ({}, "Pusher(push_destination=…) is empty"),
        ({"filesystem": {}}, "this Pusher cannot push there"),
        ({"filesystem": {"base_directory": "serving", "versioning": "BY_NAME"}}, "Invalid enum value BY_NAME"),
    ],
)
def test_an_invalid_destination_is_refused(given, message):
    todo = 'push_destination={"filesystem": {"base_directory": \'serving\'}}'
    with refused(DeclarationError, expected="filesystem.base_directory", todo=todo) as caught:
        push(given)
    assert message in str(caught.value)


def test_a_destination_is_accepted_as_tfx_accepts_it():
    message = pusher_pb2.PushDestination(filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="serving"))
    assert push(SERVING) == push('{"filesystem": {"base_directory": "serving"}}')
    assert '"base_directory": "serving"' in push(message)
    folder = RuntimeParameter(name="folder", ptype=str)
    assert push(folder) is folder
    assert "folder" in str(push({"filesystem": {"base_directory": folder}}))
    # Another executor's destination is unknown here.
    spec = executor_spec.ExecutorClassSpec(type("Elsewhere", (executor_spec.ExecutorClassSpec,), {}))
    assert push({}, custom_executor_spec=spec) == {}


@pytest.mark.parametrize("component", [Trainer, Tuner])
@pytest.mark.parametrize("name", ["train_args", "eval_args"])
def test_an_invalid_length_is_refused(component, name):
    kind = {"train_args": trainer_pb2.TrainArgs, "eval_args": trainer_pb2.EvalArgs}[name]
    for given, message in (
        ({"num_step": 10}, 'has no field named "num_step"'),
        ({"num_steps": "ten"}, "num_steps"),
        (10, "is an object, builtins.int"),
    ):
        with refused(DeclarationError, todo=f"write {name}=trainer_pb2.{kind.__name__}(num_steps=…)") as caught:
            train(component, **{name: given})
        assert str(caught.value).startswith(f"{component.__name__}({name}=…)")
        assert message in str(caught.value)
    for given in ({"num_steps": 10}, kind(num_steps=10)):
        assert '"num_steps": 10' in train(component, **{name: given})[name]


@pytest.mark.parametrize(
    ("text", "reworded"),
    [
        ("raise trainer.start_timeout, or", "raise Trainer(settings=Settings(start_timeout=…)), or"),
        ("(trainer.distribution.max_restarts)", "(Trainer(distribution={'max_restarts': …}))"),
        ("trainer.distribution.train.timeout_seconds if", "Trainer(distribution={'train': {'timeout_seconds': …}}) if"),
        ("remove trainer.distribution.", "remove Trainer(distribution=…)."),
        ("set trainer.tf1: true, or transform.tf1: true for a preprocessing_fn", "set Trainer(tf1=True)"),
    ],
)
def test_option_names_of_a_declaration_become_python_arguments(text, reworded):
    error = TaskStalledError(text, expected=text, todo=text)
    reword(error)
    assert (error.what, error.expected, error.todo) == (reworded, reworded, reworded)


def test_a_trials_arguments_are_the_tuners():
    error = TaskStalledError("raise trainer.stall_timeout", todo="set trainer.distribution.train.workers")
    reword(error, TUNER)
    assert error.what == "raise Tuner(settings=Settings(stall_timeout=…))"
    assert error.todo == "set Tuner(distribution={'train': {'workers': …}})"
