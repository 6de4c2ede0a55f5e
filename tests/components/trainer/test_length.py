"""Epochs become steps when the examples are counted."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.components.trainer.length import with_steps
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit


@pytest.fixture
def resolve(declaration):
    """Resolves a declared trainer over so many examples; returns its section and the properties."""
    from tfx.types import standard_artifacts

    def run(count, **trainer):
        examples = standard_artifacts.Examples()
        if count:
            examples.set_int_custom_property("num_examples_train", count)
        settings = Settings(declaration=declaration(**{"train_steps": None, **trainer}))
        properties = {"train_args": json.dumps({"num_steps": 0, "splits": ["train"]}), "other": "kept"}
        settings, properties = with_steps(settings, properties, [examples])
        return settings.trainer, properties

    return run


@pytest.mark.parametrize(
    ("count", "epochs", "batch", "steps"),
    [
        (60_000, 5, 128, 2344),
        (1280, 3, 128, 30),
        (1281, 1, 128, 11),
        (1000, 0.1, 10, 10),
        (3000, 0.7, 7, 300),
        (5, 0.1, 64, 1),
    ],
)
def test_a_begun_step_counts(resolve, count, epochs, batch, steps):
    section, properties = resolve(count, train_epochs=epochs, global_batch_size=batch)
    assert (section.train_steps, section.train_epochs) == (steps, None)
    assert json.loads(properties["train_args"]) == {"num_steps": steps, "splits": ["train"]}
    assert properties["other"] == "kept"


def test_intervals_follow_from_the_steps(resolve):
    section, _ = resolve(
        60_000, train_epochs=10, global_batch_size=100, save_checkpoints_steps=None, log_every_steps=None
    )
    assert (section.train_steps, section.checkpoint_steps, section.report_steps) == (6000, 600, 100)


def test_declared_steps_stay(resolve):
    section, properties = resolve(1000, train_steps=7)
    assert section.train_steps == 7
    assert json.loads(properties["train_args"])["num_steps"] == 0


@pytest.mark.parametrize(
    ("count", "trainer", "text"),
    [
        (0, {"train_epochs": 1}, "do not say how many"),
        (128, {"train_epochs": 3, "optimizer": {"warmup_steps": 12}}, "are 12 steps: the warm-up"),
        (128, {"train_epochs": 3, "profile": {"start_step": 12}}, "before the profile begins"),
        (10**9, {"train_epochs": 10**6, "global_batch_size": 1}, "1,000,000,000,000,000 steps"),
    ],
)
def test_what_cannot_be_told_in_steps_is_refused(resolve, count, trainer, text):
    with pytest.raises(DeclarationError) as caught:
        resolve(count, **trainer)
    assert text in caught.value.what
    assert "train_epochs" in caught.value.what
    assert caught.value.todo
