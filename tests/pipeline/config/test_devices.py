"""Which devices a strategy is given, as a number or a list of them."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Devices, Distribution, Strategy
from tfx_estimator.pipeline.config.render import render

pytestmark = pytest.mark.unit

TRAIN, EVAL = "trainer.distribution.train", "trainer.distribution.eval"


# What is declared, why it is no choice of devices, and what to do.
NO_CHOICE = [
    ("[]", "the list is empty", "choose another value"),
    ("[1, 1]", "1 is named more than once", "choose another value"),
    ("[-1]", "item 1: the index is out of range, 0 to 63", "choose another value"),
    ("[0, 64]", "item 2: the index is out of range, 0 to 63", "choose another value"),
    ("[a]", "item 1: text is no number", "write a value of that kind"),
    ("[0, true]", "item 2: true/false is no number", "write a value of that kind"),
    ("[1.0]", "item 1: it is no whole number", "write a value of that kind"),
    ("[[1]]", "item 1: a list is no number", "write a value of that kind"),
    ("[null]", "item 1: null is no number", "write a value of that kind"),
    ("0", "the value is out of range", "choose another value"),
    ("-2", "the value is out of range", "choose another value"),
    ("65", "the value is out of range", "choose another value"),
    ("true", "true/false is no number", "write a value of that kind"),
    ("2.0", "it is no whole number", "write 2"),
    ("'2'", "text is no number", "write it without quotes, in digits"),
    ("all", "text is no number", "write it without quotes, in digits"),
]


@pytest.mark.parametrize(("chosen", "what", "todo"), NO_CHOICE)
@pytest.mark.parametrize(
    ("kind", "meaning"),
    [
        ("cpu", "how many logical CPUs; or, from 0, which ones of them: [0, 2]"),
        ("gpu", "how many GPUs, from the first; or, from 0, which: [1, 3]"),
    ],
)
def test_what_is_no_choice_of_devices(problems, good, chosen, what, todo, kind, meaning):
    assert problems(f"{good}  distribution: {{train: {{strategy: mirrored, devices: {{{kind}: {chosen}}}}}}}\n") == [
        f"mine.yaml:8  {TRAIN}.devices.{kind}: {chosen}\n{what}\n"
        f"expected: a whole number, at least 1, at most 64, or null ({meaning})\nto do:    {todo}"
    ]


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
    assert Distribution.parse_obj(json.loads(distribution.json())) == distribution
    assert len({distribution.eval, Strategy(), Strategy()}) == 2


@pytest.mark.parametrize("name", ["TF_CONFIG", "SLURM_PROCID"])
def test_in_a_cluster_of_others_a_list_is_of_each_machine(write, problems, good, monkeypatch, name):
    text = f"{good}  distribution: {{train: {{strategy: multi_worker_mirrored, devices: {{gpu: [1, 3]}}}}}}\n"
    monkeypatch.setenv(name, " ")
    assert len(problems(text)) == 1
    monkeypatch.setenv(name, "0")
    assert load("mine.yaml").declaration.trainer.distribution.train.replicas == 4
