"""Weights that are split among devices are trained to what they are whole, by real steps of the Keras paths."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

ALWAYS = ("rows.momentum.functional.2",)
CASES = (
    *ALWAYS,
    "columns.adam.functional.2",
    "columns.momentum.sequential.2",
    "columns without bias.adam.functional.2",
    "rows.adam.functional.2",
    "rows.sgd.sequential.4",
    "last columns.adamw.functional.2",
    "last rows.adam.functional.2",
    "pair.momentum.sequential.2",
    "pair.adam.functional.4",
    "every kernel.sgd.functional.2",
)
# Of networks in float64; losses are reported in it as well.
CLOSE = 1e-9
# What the first of two devices has of a weight, of its gradient's sum and of its square.
PARTS = {
    "columns": {"dense1/kernel": [36, 16], "dense1/bias": [16], "dense2/kernel": [32, 16], "logits/kernel": [48, 10]},
    "rows": {"dense1/kernel": [18, 32], "dense1/bias": [32], "dense2/kernel": [32, 16], "logits/kernel": [48, 10]},
}
SLOTS = {"adam": ("m", "v"), "momentum": ("momentum",)}


@pytest.fixture(scope="module")
def trained(train_apart, tmp_path_factory: pytest.TempPathFactory):
    """How far a case's trainings lie apart; those that are always tried are trained in one process."""
    folder = tmp_path_factory.mktemp("split")
    found: dict[str, dict] = {}

    def find(case: str) -> dict:
        if case not in found:
            file = folder / f"{len(found)}.json"
            train_apart("train_split", file, *(ALWAYS if case in ALWAYS else [case]))
            found.update(json.loads(file.read_text()))
        return found[case]

    return find


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=() if each in ALWAYS else pytest.mark.long) for each in CASES]
)
def test_losses_weights_and_slots_are_those_of_whole_weights_after_a_restart_too(trained, case):
    found = trained(case)
    assert found["fell"][1] < found["fell"][0]
    kinds = ("losses", "weights", "split from whole", "whole from split", "split from split")
    assert {kind: found[kind] for kind in kinds if found[kind] > CLOSE} == {}


@pytest.mark.parametrize("case", [*ALWAYS, pytest.param("columns.adam.functional.2", marks=pytest.mark.long)])
def test_each_device_has_a_part_of_a_weight_and_of_its_slots(trained, case):
    layout, optimizer, *_ = case.split(".")
    parts = trained(case)["parts"]
    for name, shape in PARTS[layout].items():
        for each in (name, *(f"{name}/{slot}" for slot in SLOTS[optimizer])):
            assert parts[each] == shape


def test_what_cannot_be_split_so_is_refused_with_what_there_is(trained):
    trained(ALWAYS[0])
    said = trained("refused")
    assert "trainer.model_parallel.layout.conv/kernel: conv is a layer of the kind Conv2D" in said["filters"]
    assert "no weight that 'dense9/*' decides on" in said["no such weight"]
    assert "conv/kernel, conv/bias, dense1/kernel, dense1/bias, dense2/kernel" in said["no such weight"]
    assert "dense1/bias has the shape [32], and the layout 2 dimensions" in said["dimensions"]
    assert "logits/kernel has the shape [48, 10], and 10 cannot be split into 4 equal parts" in said["size"]
    assert "trainer.model_parallel.layout: DTensor cannot compute the network: " in said["normalising"]
    assert "FusedBatchNorm" in said["normalising"]
    assert "trainer.model_parallel.layout: dense1 has a weight with a constraint" in said["constrained"]
    assert "Stateful random operations are not supported in DTensor" in said["dropping"]
    assert "put tfx_estimator.model_fn.layers.StatelessDropout in place of Keras's Dropout" in said["dropping"]
