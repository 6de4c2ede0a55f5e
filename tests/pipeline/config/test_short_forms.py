"""Short forms of strategies and devices."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.experiments.bench.strategies import parse_contenders

pytestmark = pytest.mark.unit

TRAIN = "trainer.distribution.train"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("mirrored:2", {"strategy": "mirrored", "devices": {"cpu": 2}}),
        ("central_storage:4", {"strategy": "central_storage", "devices": {"cpu": 4}}),
        ("multi_worker_mirrored:2", {"strategy": "multi_worker_mirrored", "workers": 2}),
        ("parameter_server:4", {"strategy": "parameter_server", "workers": 4}),
        ("one_device", {"strategy": "one_device"}),
        ("mirrored", {"strategy": "mirrored"}),
    ],
)
def test_a_strategy_is_written_as_bench_writes_it(tmp_path, short, long):
    meant = Distribution.parse_obj({"train": long})
    assert Distribution.parse_obj({"train": short}) == meant
    (tmp_path / "my.yaml").write_text(
        "name: my\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        f"trainer:\n  model: mnist_cnn\n  train_steps: 9\n  distribution: {{train: {short}}}\n"
    )
    loaded = load(tmp_path / "my.yaml")
    assert loaded.declaration.trainer.distribution == meant
    assert loaded.origins[f"{TRAIN}.strategy"] == "my.yaml:6"
    loaded = load("digits", [f"{TRAIN}={short}"])
    assert loaded.declaration.trainer.distribution == meant
    assert loaded.origins[f"{TRAIN}.strategy"] == "--set"
    assert parse_contenders(short)


def test_a_number_of_devices_is_that_of_logical_cpus():
    loaded = load("digits", [f"{TRAIN}={{strategy: mirrored, devices: 2}}", "trainer.distribution.eval=mirrored:2"])
    distribution = loaded.declaration.trainer.distribution
    assert distribution.train.devices.cpu == distribution.eval.devices.cpu == 2
    assert loaded.origins[f"{TRAIN}.devices.cpu"] == "--set"


def test_parts_of_a_short_form_can_be_overridden():
    loaded = load("digits", [f"{TRAIN}=multi_worker_mirrored:2", f"{TRAIN}.workers=4"])
    assert loaded.declaration.trainer.distribution.train.worker_count == 4


@pytest.mark.parametrize(
    ("override", "todo"),
    [
        ("trainer.train_steps=5.0", "in --set trainer.train_steps=VALUE: write 5"),
        ("data.shard=4", "in --set data.shard=VALUE: did you mean `shards`?"),
    ],
)
def test_what_to_do_about_an_override_names_the_override(override, todo):
    with pytest.raises(DeclarationError) as raised:
        load("digits", [override])
    assert f"      to do:    {todo}" in str(raised.value)
    assert str(raised.value).endswith("  then:     tfx-estimator validate digits --set …")
