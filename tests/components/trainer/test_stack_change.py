"""A run says once that the last one was on another stack, and whether what it has trained counts."""

from __future__ import annotations

import logging

import pytest

from tfx_estimator.components.trainer.component import _note_stack
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = pytest.mark.unit


@pytest.fixture
def said(tmp_path, caplog, monkeypatch):
    """Returns what a run on a stack, with a key, says."""
    caplog.set_level(logging.INFO, "absl.tfx_estimator")

    def run(stack: stacks.Stack, key: str) -> str:
        caplog.clear()
        monkeypatch.setattr(stacks, "current", lambda: stack)
        _note_stack(key, str(tmp_path), "7")
        return caplog.text

    return run


def test_it_is_said_once_to_and_fro(said):
    assert not said(stacks.LEGACY, "a")
    changed = "the last run here was on tfx1.15, and this one is on tfx1.21: the Trainer's key is the same"
    assert changed in said(stacks.TODAY, "a")
    assert not said(stacks.TODAY, "a")
    assert "was on tfx1.21, and this one is on tfx1.15" in said(stacks.LEGACY, "a")


@pytest.mark.parametrize(("executions", "is_said"), [(["7"], False), (["3", "7"], True)])
def test_runs_that_have_noted_nothing_were_on_the_earlier_stack(said, tmp_path, executions, is_said):
    for execution in executions:
        (tmp_path / "model_run" / execution).mkdir(parents=True)
    assert (
        "was on tfx1.15, and this one is on tfx1.21: the Trainer's key is another" in said(stacks.TODAY, "a")
    ) is is_said
    assert not said(stacks.TODAY, "a")


def test_another_key_on_another_stack_is_told_from_the_same(said):
    said(stacks.LEGACY, "a")
    assert not said(stacks.LEGACY, "b")
    assert "the Trainer's key is another" in said(stacks.TODAY, "c")
