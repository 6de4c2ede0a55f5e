"""How an estimate is shown."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.estimate.estimate import Device, Estimate, Memory
from tfx_estimator.pipeline.estimate.table import count, lines, size
from tfx_estimator.pipeline.estimate.wire import Wire

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("number", "shown"), [(999, "999"), (999_400, "999 k"), (999_600, "1 M"), (1_234_567, "1.23 M"), (0, "0")]
)
def test_counts(number, shown):
    assert count(number) == shown


@pytest.mark.parametrize(("number", "shown"), [(1023, "1,023 B"), (1024**2 - 1, "1.0 MB"), (1536, "1.5 KB")])
def test_sizes(number, shown):
    assert size(number) == shown


@pytest.mark.parametrize("unseen", [(), ("PyFunc",)])
def test_what_is_at_least_so_much_says_so(unseen):
    memory = Memory(1, 1, 1, 1, 1, None, 1, 1, False)
    divided = not unseen
    found = Estimate("name", "own:model", "one_device", 1, 32, 10, 100.0, 300.0, memory, Wire(), unseen, divided)
    assert any("on several devices" in note for note in found.notes()) == divided
    shown = {line.split("  ")[0]: line for line in lines(found) if not line.startswith(" ")}
    for title in ("FLOPs per example", "memory of a replica", "memory of a process"):
        assert ("≥ " in shown[title]) == bool(unseen)
    assert "≥" not in shown["parameters"]
    assert "memory of the fullest device" not in shown
    assert "between devices" not in shown
    assert found.to_dict()["lower_bound"] == bool(unseen)


def test_the_fullest_device_and_what_goes_between_them():
    devices = Device("gpu:0", 1, 1, 1, 2048), Device("gpu:1", 4096, 1, 1, 1024)
    wire = Wire(0, 0, 3 << 20, "nothing: there is one process")
    memory = Memory(1, 1, 1, 1, 1, None, 1, 1, False)
    found = Estimate(
        "name", "own:model", "one_device", 1, 32, 10, 1.0, 3.0, memory, wire, divided=True, devices=devices
    )
    shown = {line.split("  ")[0]: line for line in lines(found) if not line.startswith(" ")}
    assert shown["memory of the fullest device"].endswith(
        "5.0 KB, on gpu:1: weights 4.0 KB, gradients 1 B, slots 1 B, activations 1.0 KB"
    )
    assert shown["between devices"].endswith("3.0 MB a step")
    assert "one device" not in shown["sent in a step"]
    assert [each["total"] for each in found.to_dict()["devices"]] == [2051, 5122]
