"""Errors of a training in somebody else's pipeline speak of the Trainer's arguments, not of a declaration."""

from __future__ import annotations

import pytest

from tfx_estimator.components.trainer.wording import reword
from tfx_estimator.pipeline.errors import TaskStalledError

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
