"""A table with new files each day, from one day's pushed model to the next one's."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.e2e.conftest import Workdir
from tests.waiting import wait_until
from tfx_estimator.components.trainer.vocabularies import read_vocabularies

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

_DECLARED = """\
name: shops
data: {csv: "days/day-{SPAN}/*.csv", spans: {last: 2}, label: bought}
trainer: {model: wide_deep, path: PATH, train_steps: 200, global_batch_size: 64, warm_start: {blessed: latest}}
"""
_SHOPS = 40


def write_day(folder: Path, day: int, shift: int = 0, shops: int = _SHOPS, columns: Sequence[str] = ()) -> None:
    """Writes 1,500 rows: each shop sells or does not; how many rows it has, and so its place, changes each day."""
    drawn = random.Random(day)
    names = ["shop", "hour", "size", "bought"]
    (folder / "days" / f"day-{day}").mkdir(parents=True)
    with open(folder / "days" / f"day-{day}" / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in names if name not in columns], extrasaction="ignore")
        writer.writeheader()
        shares = [3 + (shop * 7 + day * 3) % 5 for shop in range(shops)]
        for _ in range(1500):
            shop = drawn.choices(range(shops), shares)[0]
            bought = int(drawn.random() < (0.05, 0.95)[shop % 2])
            values = (f"s{shop}", drawn.randrange(24), round(drawn.gauss(shift, 1), 4), bought)
            writer.writerow(dict(zip(names, values)))


@pytest.fixture(params=["estimator", "keras", "keras_custom_loop"])
def shops(request, tmp_path) -> Path:
    (tmp_path / "shops.yaml").write_text(_DECLARED.replace("PATH", request.param))
    for day in (1, 2):
        write_day(tmp_path, day)
    return tmp_path


def _transformed(graph: str, shop: bytes) -> dict[str, bytes]:
    """Returns what a graph makes of a row's columns, as bytes."""
    output = tft.TFTransformOutput(graph)
    row = {"shop": {"bytes_list": {"value": [shop]}}, "hour": {"int64_list": {"value": [3]}}}
    row["size"] = {"float_list": {"value": [0.25]}}
    features = {name: tf.train.Feature(**value) for name, value in row.items()}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    spec = {name: form for name, form in output.raw_feature_spec().items() if name in row}
    made = output.transform_features_layer()(tf.io.parse_example([example.SerializeToString()], spec))
    values = {name: getattr(value, "values", value) for name, value in made.items()}
    return {name: value.numpy().tobytes() for name, value in values.items()}


def _log(workdir: Workdir) -> str:
    return sorted((workdir.path / "shops" / "logs").glob("*/pipeline.log"))[-1].read_text()


def test_a_day_goes_on_from_the_last_blessed_one_whatever_the_order_of_its_words(shops):
    workdir = Workdir(shops / "runs")
    workdir.run("shops.yaml", cwd=shops, seconds=400)
    first = workdir.summary("shops")
    assert first["blessed"] is True
    assert "begins with initial weights" in _log(workdir)
    assert sum(first["examples"].values()) == 3000

    # Four steps more: from the start they would tell nothing, and with another word's weights less than that.
    write_day(shops, 3, shops=_SHOPS + 1)
    few = ("--set", "trainer.train_steps=4")
    workdir.run("shops.yaml", *few, cwd=shops, seconds=400)
    second = workdir.summary("shops")
    assert "new words: 1 of shop" in _log(workdir)
    assert second["training"]["last_step"] == 4
    assert second["metrics"]["auc"] >= first["metrics"]["auc"] - 0.02
    assert second["blessed"] is True
    read = {node for node, state in workdir.states("shops").items() if state == "ran"}
    assert {"CsvExampleGen.3", "StatisticsGen.3", "Trainer"} <= read
    assert not read & {"CsvExampleGen.1", "CsvExampleGen.2", "StatisticsGen.1", "StatisticsGen.2"}
    workdir.run("shops.yaml", *few, cwd=shops, seconds=400)
    assert {state for node, state in workdir.states("shops").items() if node != "BaselineResolver"} == {"cached"}


def test_a_day_that_drifts_or_lacks_a_column_trains_nothing_and_a_killed_one_is_gone_on_with(shops):
    workdir = Workdir(shops / "runs")
    workdir.run("shops.yaml", cwd=shops, seconds=400)
    pushed = sorted((workdir.path / "shops" / "serving").iterdir())
    write_day(shops, 3, shift=3)
    printed = workdir.run("shops.yaml", code=3, cwd=shops, seconds=400)
    assert "day 3, feature 'size'" in printed
    assert workdir.states("shops").get("Trainer") not in ("ran", "cached")
    (shops / "days" / "day-3").rename(shops / "drifted")
    write_day(shops, 3, columns=["hour"])
    assert "day-3/rows.csv has size for column 2" in workdir.run("shops.yaml", code=2, cwd=shops, seconds=400)
    (shops / "days" / "day-3").rename(shops / "lacking")
    assert sorted((workdir.path / "shops" / "serving").iterdir()) == pushed

    # Killed in the midst of its training: the next run resumes it, from the same weights of the same day.
    write_day(shops, 3)
    long = ("--set", "trainer.train_steps=3000", "--set", "trainer.save_checkpoints_steps=100")
    words = ["run", "shops.yaml", "--no-report", "--no-dry-run", *long, "--workdir", str(workdir.path)]
    trainings = workdir.path / "shops" / "artifacts" / "Trainer" / "training"
    with subprocess.Popen([sys.executable, "-m", "tfx_estimator", *words], cwd=shops) as run:
        try:
            wait_until(lambda: list(trainings.glob("*/model.ckpt-[1-9]00.index")), "no checkpoint", 300)
            os.kill(run.pid, signal.SIGKILL)
        finally:
            run.kill()
    workdir.run("shops.yaml", *long, cwd=shops, seconds=400)
    results = workdir.summary("shops")
    assert results["training"]["first_step"] >= 100
    assert results["training"]["last_step"] == 3000
    # Fifteen times the first day's steps fit the rows too well for a blessing.
    assert results["metrics"]["auc"] >= 0.85


def test_frozen_analyzers_keep_means_and_numbers_and_new_words_come_at_the_end(tmp_path):
    declared = _DECLARED.replace("PATH", "estimator") + "transform: {analyzers: frozen}\n"
    (tmp_path / "shops.yaml").write_text(declared)
    (tmp_path / "own.py").write_text("def preprocess(inputs, custom_config):\n    return inputs\n")
    for day in (1, 2):
        write_day(tmp_path, day)
    workdir = Workdir(tmp_path / "runs")
    workdir.run("shops.yaml", cwd=tmp_path, seconds=580)
    first = workdir.summary("shops")
    write_day(tmp_path, 3, shops=_SHOPS + 1)
    few = ("--set", "trainer.train_steps=4")
    workdir.run("shops.yaml", *few, cwd=tmp_path, seconds=580)
    second = workdir.summary("shops")
    assert "new words: 1 of shop" in _log(workdir)
    assert second["blessed"] is True
    assert second["metrics"]["auc"] >= first["metrics"]["auc"] - 0.02

    graphs = (workdir.path / "shops" / "artifacts" / "Transform" / "transform_graph").iterdir()
    before, after = map(str, sorted(graphs, key=lambda path: int(path.name)))
    words, grown = (read_vocabularies(graph)["shop"].words for graph in (before, after))
    assert grown == (*words, f"s{_SHOPS}".encode())
    sizes = []
    for graph in (before, after):
        sizes.append(_transformed(graph, words[7]))
    # To the bit.
    assert sizes[0] == sizes[1]
    changed = ("--set", "transform.preprocessing_fn=own:preprocess", "--set", "data.task=binary")
    printed = workdir.run("shops.yaml", *changed, code=2, cwd=tmp_path, seconds=300)
    assert "run once with --set transform.analyzers=null" in printed
