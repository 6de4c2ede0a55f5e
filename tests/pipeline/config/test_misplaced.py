"""What is written down for another path, strategy or task: told, and nothing else is."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

_CLUSTER = "trainer.distribution.train.strategy=multi_worker_mirrored"
_EVALUATOR = [_CLUSTER, "trainer.distribution.evaluator=true"]


@pytest.mark.parametrize(
    ("override", "whose", "fitting"),
    [
        ("trainer.steps_per_execution=20", "the Keras paths", ["trainer.path=keras"]),
        ("trainer.distribution.sharding=element", "a cluster, and there is one process", [_CLUSTER]),
        ("trainer.distribution.start_delay_secs=0", "the evaluator task, and there is none", _EVALUATOR),
    ],
)
def test_what_is_of_another_path_strategy_or_task_is_told(write, good, override, whose, fitting):
    write(good)
    said = f"{override.partition('=')[0]} has no effect: it is of {whose}"
    assert load("mine.yaml", [override]).warnings == (f"--set  {said}",)
    assert load("mine.yaml", [override, *fitting]).warnings == ()
    write(good + "  steps_per_execution: 7\n")
    (warning,) = load("mine.yaml").warnings
    assert warning == "mine.yaml:8  trainer.steps_per_execution has no effect: it is of the Keras paths"


def test_the_pace_of_evaluations_is_none_of_what_each_checkpoint_is_evaluated_for(write, good):
    write(good)
    override = "trainer.distribution.throttle_secs=30"
    assert load("mine.yaml", [override]).warnings == ()
    (warning,) = load("mine.yaml", [override, "trainer.keep_best=accuracy"]).warnings
    assert "throttle_secs has no effect" in warning


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [
        ("{name: adamw, weight_decay: 0.01}", True),
        ("{name: adamw, weight_decay: 0.01, decoupled_weight_decay: 0.004}", False),
        ("{name: adamw, decoupled_weight_decay: 0.01}", False),
        ("{name: sgd, weight_decay: 0.01}", False),
    ],
)
def test_a_weight_decay_beside_that_of_adamw_is_told(write, good, optimizer, warned):
    warnings = load(write(f"{good}  optimizer: {optimizer}\n")).warnings
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("mine.yaml:8  trainer.optimizer.weight_decay is L2 on kernels")


def test_what_show_prints_says_nothing_new(write, good, capsys):
    write(good + "tune: {ranges: {trainer.optimizer.momentum: [0.5, 0.9]}}\n")
    assert main(["show", "mine.yaml"]) == 0
    write(capsys.readouterr().out, "whole.yaml")
    whole = load("whole.yaml")
    assert whole.declaration == load("mine.yaml").declaration
    assert whole.warnings == ()
