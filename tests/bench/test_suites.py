"""What the benchmarks compare with what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench import suites
from tests.bench.measure import Worker


@pytest.mark.unit
def test_the_input_of_each_path_is_measured_on_both_data_sets(monkeypatch):
    asked = []

    def train(setting: Any, case: str, sides: list[str], steps: int, slices: int) -> Any:
        asked.append((case, sides))
        rates = {side: 1000.0 if side.startswith("constant ") else 960.0 for side in sides}
        return {side: [] for side in sides}, {}, rates

    monkeypatch.setattr(suites, "_train_keras", train)
    ratios, results = suites.keras_input(suites.Setting("", None, 1, print))
    paths = ("estimator", "keras", "keras_custom_loop")
    sides = [side for path in paths for side in (path, f"constant {path}")]
    assert asked == [("cifar_cnn", sides), ("mnist_cnn", sides)]
    assert [(ratio.what.partition(":")[0], ratio.target) for ratio in ratios] == [
        *((path, 0.95) for path in paths),
        *((path, 0.9) for path in paths),
    ]
    assert len(results) == 12
    assert all(ratio.passed for ratio in ratios)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_estimator_trains_a_case_of_the_keras_paths_in_slices(tmp_path, real_data_dir):
    setting = suites.Setting(str(tmp_path), real_data_dir, 1, print)
    options = {"case": "cifar_cnn", "data_dir": real_data_dir, "prepared": setting.prepared("cifar10")}
    for side in ("estimator", "constant estimator"):
        with Worker("train_keras", side=side, slice_steps=10, **options) as worker:
            assert worker.hear() == {"warm": True}
            slices = [worker.go() for _ in range(3)]
            worker.wait()
        assert [each["examples"] for each in slices] == [640, 640, 640]
        assert all(each["cpu"] > 0 and each["wall"] > 0 for each in slices)
