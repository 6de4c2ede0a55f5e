"""Estimated bytes of a step and of memory, compared with values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tfx_estimator.components.trainer.dry_run.costs import Costs
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.experiments.estimate import (
    Device,
    Estimate,
    Memory,
    Wire,
    count,
    lines,
    make_estimate,
    size,
)

WEIGHTS, GRADIENTS = 1200, 1000


@pytest.mark.parametrize(
    ("train", "sent", "total", "between"),
    [
        ("one_device", 0, 0, 0),
        ("mirrored:2", 0, 0, 2000),
        ("mirrored:4", 0, 0, 6000),
        ("central_storage:2", 0, 0, 2 * 2200),
        # A ring of 2 sends all gradients once from each; one of 4 sends 6 quarters of them.
        ("multi_worker_mirrored", 1000, 2000, 0),
        ("multi_worker_mirrored:4", 1500, 6000, 0),
        ("{strategy: multi_worker_mirrored, workers: 2, devices: {gpu: 2}}", 1000, 2000, 4000),
        ("{strategy: multi_worker_mirrored, gradient_compression: fp16}", 500, 1000, 0),
        ("multi_worker_mirrored:1", 0, 0, 0),
        ("{strategy: parameter_server, workers: 3, ps: 2}", 1200, 3 * 2200, 0),
    ],
)
def test_bytes_sent_in_a_step(train, sent, total, between):
    found = estimated([f"trainer.distribution.train={train}"]).wire
    assert (found.sent, found.total, found.between_devices) == (sent, total, between)


def estimated(declared: list[str], **found: Any) -> Estimate:
    costs = dict.fromkeys(Costs.__dataclass_fields__, 0) | {"batch": 64, "unseen": ()}
    costs |= {"weight_bytes": WEIGHTS, "trained_bytes": GRADIENTS, **found}
    return make_estimate(load("digits", declared).declaration, costs)


def test_the_gradients_of_embeddings_are_not_compressed():
    declared = ["trainer.distribution.train={strategy: multi_worker_mirrored, gradient_compression: bf16}"]
    assert estimated(declared).wire.sent == 500
    assert estimated(declared, table_bytes=400).wire.sent == 300 + 400


def test_the_chief_of_a_keras_path_pulls_and_pushes_nothing():
    for path, workers in (("estimator", 3), ("keras", 2), ("keras_custom_loop", 2)):
        declared = ["trainer.distribution.train={strategy: parameter_server, workers: 3}", f"trainer.path={path}"]
        assert estimated(declared).wire.total == workers * 2200


def test_an_outer_momentum_keeps_two_copies_of_the_weights_and_sends_none():
    declared = ["trainer.distribution.train=multi_worker_mirrored", "trainer.path=keras"]
    without, momentum = (
        estimated([*declared, f"trainer.sync_every={each}"], slot_bytes=10)
        for each in ("4", "{steps: 4, outer_momentum: 0.5}")
    )
    assert (without.memory.slots, momentum.memory.slots) == (10, 10 + 2 * GRADIENTS)
    assert without.wire == momentum.wire


def test_the_devices_of_central_storage_share_one_copy_of_the_weights_and_slots():
    central, mirrored = (
        estimated(
            [f"trainer.distribution.train={each}:3", "trainer.global_batch_size=66"],
            slot_bytes=2000,
            peak_bytes=GRADIENTS + 300,
        )
        for each in ("central_storage", "mirrored")
    )
    assert central.memory.replica == mirrored.memory.replica == WEIGHTS + GRADIENTS + 2000 + 300
    assert mirrored.memory.process - mirrored.memory.runtime == 3 * (WEIGHTS + GRADIENTS + 2000 + 300)
    assert central.memory.process - central.memory.runtime == WEIGHTS + 2000 + 3 * (GRADIENTS + 300)
    assert any("with 3 of them, which share weights and slots" in line for line in lines(central))
    assert not any("share" in line for line in lines(mirrored))


HELD = [
    {"weight_bytes": 100, "trained_bytes": 90, "slot_bytes": 90, "peak_bytes": 900},
    {"weight_bytes": 1100, "trained_bytes": 910, "slot_bytes": 900, "peak_bytes": 1910},
]


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("model_parallel={devices: [gpu:2, gpu:3], layers: {logits: 1}}", ["gpu:2", "gpu:3"]),
        ("pipeline_parallel={stages: 2, microbatches: 4}", ["number 0", "number 1"]),
    ],
)
def test_devices_of_a_divided_network_have_their_memory_and_transfers(option, names):
    held = {"peak_bytes": 2000, "devices": HELD, "sent_bytes": 700}
    estimate = estimated(["trainer.path=keras", f"trainer.{option}"], **held)
    assert (estimate.wire.total, estimate.wire.between_devices) == (0, 700)
    assert "one device" not in estimate.wire.how
    assert [(each.name, each.activations) for each in estimate.devices] == [(names[0], 810), (names[1], 1000)]
    assert any(f"on {names[1]}: weights" in line for line in lines(estimate))
    assert estimate.devices[1].total == 1100 + 910 + 900 + 1000


@pytest.mark.parametrize("xla", [True, False])
def test_an_approximation_for_xla_is_noted(xla):
    notes = estimated([f"trainer.xla={str(xla).lower()}"]).to_dict()["notes"]
    assert [note[:31] for note in notes] == ["trainer.xla: true is counted as"] * xla


def test_averaged_weights_and_slots_are_sent_instead_of_gradients():
    declared = ["trainer.distribution.train=multi_worker_mirrored", "trainer.path=keras", "trainer.sync_every=4"]
    found = estimated(declared, slot_bytes=1000).wire
    assert (found.sent, found.total) == (500, 1000)
    assert "once in 4 steps" in found.how


@pytest.mark.parametrize(
    ("number", "shown"), [(999, "999"), (999_400, "999 k"), (999_600, "1 M"), (1_234_567, "1.23 M"), (0, "0")]
)
def test_counts(number, shown):
    assert count(number) == shown


@pytest.mark.parametrize(("number", "shown"), [(1023, "1,023 B"), (1024**2 - 1, "1.0 MB"), (1536, "1.5 KB")])
def test_sizes(number, shown):
    assert size(number) == shown


@pytest.mark.parametrize("unseen", [(), ("PyFunc",)])
def test_lower_bounds_are_marked(unseen):
    memory = Memory(1, 1, 1, 1, 1, None, 1, 1, False)
    found = Estimate("name", "own:model", "one_device", 1, 32, 10, 100.0, 300.0, memory, Wire(), unseen)
    shown = {line.split("  ")[0]: line for line in lines(found) if not line.startswith(" ")}
    for title in ("FLOPs per example", "memory of a replica", "memory of a process"):
        assert ("≥ " in shown[title]) == bool(unseen)
    assert "≥" not in shown["parameters"]
    assert "memory of the fullest device" not in shown
    assert "between devices" not in shown
    assert found.to_dict()["lower_bound"] == bool(unseen)


def test_the_fullest_device_and_the_transfers_are_shown():
    devices = Device("gpu:0", 1, 1, 1, 2048), Device("gpu:1", 4096, 1, 1, 1024)
    wire = Wire(0, 0, 3 << 20, "nothing: there is one process")
    memory = Memory(1, 1, 1, 1, 1, None, 1, 1, False)
    found = Estimate("name", "own:model", "one_device", 1, 32, 10, 1.0, 3.0, memory, wire, devices=devices)
    assert any("on several devices" in note for note in found.notes())
    shown = {line.split("  ")[0]: line for line in lines(found) if not line.startswith(" ")}
    assert shown["memory of the fullest device"].endswith(
        "5.0 KB, on gpu:1: weights 4.0 KB, gradients 1 B, slots 1 B, activations 1.0 KB"
    )
    assert shown["between devices"].endswith("3.0 MB a step")
    assert "one device" not in shown["sent in a step"]
    assert [each["total"] for each in found.to_dict()["devices"]] == [2051, 5122]
