"""Which devices a strategy is given, as a number or a list of them."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Devices, Distribution, Strategy
from tfx_estimator.pipeline.config.yaml_text import render

pytestmark = pytest.mark.unit

TRAIN, EVAL = "trainer.distribution.train", "trainer.distribution.eval"


# What is declared, and why it is no choice of devices.
NO_CHOICE = [
    *(
        (chosen, "no number from 1 to 64, and no list")
        for chosen in ("[]", "[1, 1]", "[-1]", "[0, 64]", "0", "-2", "65")
    ),
    ("[0, true]", "item 2: true/false is no number"),
    ("[1.0]", "item 1: it is no whole number"),
    ("[[1]]", "item 1: a list is no number"),
    ("true", "true/false is no number"),
    ("2.0", "it is no whole number"),
    ("'2'", "text is no number"),
]


@pytest.mark.parametrize(("chosen", "what"), NO_CHOICE)
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_is_no_choice_of_devices(problems, good, chosen, what, kind):
    (problem,) = problems(f"{good}  distribution: {{train: {{strategy: mirrored, devices: {{{kind}: {chosen}}}}}}}\n")
    assert problem.startswith(f"mine.yaml:8  {TRAIN}.devices.{kind}: {chosen}")
    assert what in problem
    assert "expected: a whole number, or a list, each a whole number, or null (how many" in problem


@pytest.mark.parametrize(
    ("declared", "indices", "count", "text"),
    [
        ({}, (), 1, ""),
        ({"cpu": 1}, (0,), 1, "cpu: 1"),
        ({"gpu": 3}, (0, 1, 2), 3, "gpu: 3"),
        ({"cpu": [0]}, (0,), 1, "cpu: [0]"),
        ({"gpu": [3, 1]}, (3, 1), 2, "gpu: [3, 1]"),
    ],
)
def test_callers_need_not_know_both_forms(declared, indices, count, text):
    devices = Devices.parse_obj(declared)
    assert (devices.indices, devices.count, devices.text) == (indices, count, text)


def test_a_list_of_devices_comes_back_as_it_was(write, good):
    write(good)
    overrides = [f"{EVAL}.strategy=mirrored", f"{EVAL}.devices.cpu=[0, 2]"]
    declaration = load("mine.yaml", overrides).declaration
    assert "cpu: [0, 2]" in render(declaration.dict())
    write(render(declaration.dict()))
    assert load("mine.yaml").declaration == declaration
    distribution = declaration.trainer.distribution
    assert Distribution.parse_obj(json.loads(json.dumps(distribution.dict()))) == distribution
    assert len({distribution.eval, Strategy(), Strategy()}) == 2


@pytest.mark.parametrize("name", ["TF_CONFIG", "SLURM_PROCID"])
def test_in_a_cluster_of_others_a_list_is_of_each_machine(write, problems, good, monkeypatch, name):
    text = f"{good}  distribution: {{train: {{strategy: multi_worker_mirrored, devices: {{gpu: [1, 3]}}}}}}\n"
    monkeypatch.setenv(name, " ")
    assert len(problems(text)) == 1
    monkeypatch.setenv(name, "0")
    assert load("mine.yaml").declaration.trainer.distribution.train.replicas == 4
