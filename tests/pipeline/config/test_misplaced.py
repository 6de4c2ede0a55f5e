"""What is written down for another path, strategy or task: told, also where it is the default; nothing else is."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

_TRAIN = "trainer.distribution.train"
# An override that says a default, and whose it is.
CASES = {
    "trainer.steps_per_execution=20": "the Keras paths",
    f"{_TRAIN}.cross_device_ops=reduction_to_one_device": "the strategy mirrored",
    "trainer.distribution.eval.cross_device_ops=reduction_to_one_device": "the strategy mirrored",
    f"{_TRAIN}.communication=auto": "the strategy multi_worker_mirrored",
    f"{_TRAIN}.timeout_seconds=60": "the strategy multi_worker_mirrored",
    "trainer.distribution.sharding=element": "a cluster; one_device has one process",
    "trainer.distribution.network=private": "a cluster; one_device has one process",
    "trainer.distribution.start_delay_secs=0": "the evaluator task, and there is none",
}
# Where each has an effect.
FITTING = {
    "trainer.steps_per_execution=20": ["trainer.path=keras"],
    f"{_TRAIN}.cross_device_ops=reduction_to_one_device": [f"{_TRAIN}.strategy=mirrored"],
    "trainer.distribution.eval.cross_device_ops=reduction_to_one_device": [
        "trainer.distribution.eval.strategy=mirrored"
    ],
    "trainer.distribution.start_delay_secs=0": [
        f"{_TRAIN}.strategy=multi_worker_mirrored",
        "trainer.distribution.evaluator=true",
    ],
}


@pytest.mark.parametrize("override", CASES)
def test_a_default_of_another_path_strategy_or_task_is_told(write, good, override):
    write(good)
    path = override.partition("=")[0]
    said = f"{path} has no effect: it is of {CASES[override]}"
    assert load("mine.yaml", [override]).warnings == (f"--set  {said}",)
    fitting = FITTING.get(override, [f"{_TRAIN}.strategy=multi_worker_mirrored"])
    assert load("mine.yaml", [override, *fitting]).warnings == ()
    # In a file likewise, beside whatever else.
    *sections, key = path.split(".")
    more, indent = "", ""
    for section in sections[1:]:
        indent += "  "
        more += f"{indent}{section}:\n"
    more += f"{indent}  {key}: {override.partition('=')[2]}\n"
    write(good + more)
    (warning,) = load("mine.yaml").warnings
    assert warning == f"mine.yaml:{8 + len(sections) - 1}  {said}"


def test_the_pace_of_evaluations_is_none_of_what_each_checkpoint_is_evaluated_for(write, good):
    write(good)
    override = "trainer.distribution.throttle_secs=30"
    assert load("mine.yaml", [override]).warnings == ()
    cluster = [f"{_TRAIN}.strategy=multi_worker_mirrored", "trainer.distribution.throttle_secs=1"]
    (warning,) = load("mine.yaml", cluster).warnings
    assert "throttle_secs has no effect: it is of the evaluator task, and there is none" in warning
    (warning,) = load("mine.yaml", [override, "trainer.keep_best=accuracy"]).warnings
    assert "throttle_secs has no effect: it is of trainings without keep_best and early_stopping, for which" in warning


def test_what_is_not_written_is_not_told(write, good):
    write(good)
    # One of a section; a whole section, in short and at length; and what says that there is none.
    for override in (
        f"{_TRAIN}=mirrored:2",
        f"{_TRAIN}={{strategy: multi_worker_mirrored, workers: 4}}",
        "trainer.distribution={train: {strategy: one_device}}",
        f"{_TRAIN}.gradient_compression=none",
        f"{_TRAIN}.num_packs=null",
        "trainer.optimizer={name: adam, learning_rate: 0.01}",
        "trainer={model: mnist_cnn, train_steps: 5}",
    ):
        assert load("mine.yaml", [override]).warnings == ()
    write(good + "  distribution: {train: mirrored:2}\n")
    assert load("mine.yaml").warnings == ()


def test_rates_and_trials_have_options_that_only_some_of_them_take(write, good):
    rates = "{schedule: piecewise, learning_rate: 0.05, boundaries: [100], values: [0.1, 0.01]}"
    tune = "tune: {ranges: {trainer.optimizer.momentum: {min: 0.5, max: 0.9}}, hyperband: {factor: 3}}\n"
    write(f"{good}  optimizer: {rates}\n{tune}")
    assert load("mine.yaml").warnings == (
        "mine.yaml:8  trainer.optimizer.learning_rate has no effect: it is of the other schedules; piecewise has its "
        "rates in values",
        "mine.yaml:9  tune.hyperband.factor has no effect: it is of the strategy hyperband",
    )
    assert load("mine.yaml", ["tune.strategy=hyperband", "trainer.optimizer={}"]).warnings == ()


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [
        ("{name: adamw, weight_decay: 0.01}", True),
        ("{name: adamw, weight_decay: 0.01, decoupled_weight_decay: 0.004}", False),
        ("{name: adamw, decoupled_weight_decay: 0.01}", False),
        ("{name: adamw}", False),
        ("{name: sgd, weight_decay: 0.01}", False),
    ],
)
def test_a_weight_decay_beside_that_of_adamw_is_told(write, good, optimizer, warned):
    warnings = load(write(f"{good}  optimizer: {optimizer}\n")).warnings
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("mine.yaml:8  trainer.optimizer.weight_decay is L2 on kernels")
        assert "keeps its decoupled_weight_decay of 0.004" in warnings[0]
        assert "set that, or both" in warnings[0]


@pytest.mark.parametrize(
    "more", ["", "tune: {ranges: {trainer.optimizer.momentum: [0.5, 0.9]}}\n"], ids=["plain", "tune"]
)
def test_what_show_prints_says_nothing_new(write, good, capsys, more):
    write(good + more)
    assert main(["show", "mine.yaml"]) == 0
    write(capsys.readouterr().out, "whole.yaml")
    whole = load("whole.yaml")
    assert whole.declaration == load("mine.yaml").declaration
    assert whole.warnings == ()
    # But what is said on top of it.
    (warning,) = load("whole.yaml", ["trainer.steps_per_execution=20"]).warnings
    assert warning == "--set  trainer.steps_per_execution has no effect: it is of the Keras paths"
