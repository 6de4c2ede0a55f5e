"""Errors of a training in somebody else's pipeline speak of arguments of the component, not of a declaration."""

from __future__ import annotations

import pytest

from tfx_estimator.components.in_python import TUNER, reword
from tfx_estimator.pipeline.base.errors import TaskStalledError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise trainer.start_timeout, or", "raise Trainer(settings=Settings(start_timeout=…)), or"),
        ("(trainer.distribution.max_restarts)", "(Trainer(distribution={'max_restarts': …}))"),
        ("trainer.distribution.train.timeout_seconds if", "Trainer(distribution={'train': {'timeout_seconds': …}}) if"),
        ("remove trainer.distribution.", "remove Trainer(distribution=…)."),
    ],
)
def test_what_a_declaration_calls_a_thing_is_told_in_python(text, told):
    error = TaskStalledError(text, expected=text, todo=text)
    reword(error)
    assert (error.what, error.expected, error.todo) == (told, told, told)


def test_of_a_trial_the_arguments_are_the_tuners():
    error = TaskStalledError("raise trainer.stall_timeout", todo="set trainer.distribution.train.workers")
    reword(error, TUNER)
    assert error.what == "raise Tuner(settings=Settings(stall_timeout=…))"
    assert error.todo == "set Tuner(distribution={'train': {'workers': …}})"
