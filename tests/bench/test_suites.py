"""What the benchmarks compare with what."""

from __future__ import annotations

import functools
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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, real_data_dir):
    """Our tf.Examples and Transform graph of a data set."""
    setting = suites.Setting(str(tmp_path_factory.mktemp("bench")), real_data_dir, 1, print)
    return functools.cache(setting.prepared)


def _measure(task: str, examples: int, **options: Any) -> None:
    with Worker(task, **options) as worker:
        assert worker.hear() == {"warm": True}
        slices = [worker.go() for _ in range(3)]
        worker.wait()
    assert [each["examples"] for each in slices] == [examples] * 3
    assert all(each["cpu"] > 0 and each["wall"] > 0 for each in slices)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "side",
    [
        *suites.PATHS,
        *(f"constant {path}" for path in suites.PATHS),
        "guide",
        f"{suites.WHOLE} keras",
        f"{suites.ONE_THREAD} keras",
    ],
)
def test_each_side_of_the_keras_suites_trains_in_slices(prepared, real_data_dir, side):
    options = {"case": "cifar_cnn", "data_dir": real_data_dir, "prepared": prepared("cifar10")}
    _measure("train_keras", 6400, side=side, slice_steps=100, **options)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("side", ["tutorial", "ours", "constant", "supervised"])
def test_each_side_of_the_suites_of_an_estimator_trains_in_slices(prepared, real_data_dir, side):
    options = {"data_dir": real_data_dir, "prepared": prepared(), "batch_size": 64, "steps": 10}
    _measure("train", 640, side=side, **options)
