"""Each side of the benchmarks runs."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.bench import suites
from tests.bench.embeddings import BATCH
from tests.bench.measure import Worker
from tests.bench.worker import write_table

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, real_data_dir):
    """Our tf.Examples and Transform graph of a data set."""
    setting = suites.Setting(str(tmp_path_factory.mktemp("bench")), real_data_dir, 1, print)
    return functools.cache(setting.prepared)


def _measure(task: str, examples: int, **options: Any) -> None:
    with Worker(task, **options) as worker:
        assert worker.read() == {"warm": True}
        slices = [worker.go() for _ in range(3)]
        worker.wait()
    assert [each["examples"] for each in slices] == [examples] * 3
    assert all(each["cpu"] > 0 and each["wall"] > 0 for each in slices)


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


@pytest.mark.parametrize("side", ["tutorial", "ours", "constant"])
def test_each_side_of_the_suites_of_an_estimator_trains_in_slices(prepared, real_data_dir, side):
    options = {"data_dir": real_data_dir, "prepared": prepared(), "batch_size": 64, "steps": 10}
    _measure("train", 640, side=side, **options)


@pytest.mark.parametrize("side", ["tfx", "memory", "files"])
def test_each_side_of_the_table_reader_reads_in_slices(tmp_path, side):
    write_table(str(tmp_path / "rows"), 1_000)
    _measure("read_table", 1_280, side=side, path=str(tmp_path / "rows"), batch_size=128, batches=10)


@pytest.mark.parametrize("side", ["tensorflow", "ours"])
def test_each_side_of_the_embeddings_trains_in_slices(side):
    _measure("train_embeddings", 5 * BATCH, side=side, steps=5)
