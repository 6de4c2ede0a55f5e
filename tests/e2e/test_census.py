"""An Estimator whose feature columns take a table's raw columns, from a CSV file to a pushed model."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import Workdir
from tests.root import run_python

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]


def test_an_estimator_of_raw_feature_columns_is_trained_blessed_and_pushed(tmp_path):
    shutil.copy(Path(__file__).with_name("census.py"), tmp_path)
    draw = np.random.default_rng(0)
    columns = {
        "age": draw.integers(17, 80, 4000),
        "hours_per_week": draw.integers(10, 70, 4000),
        "education": draw.choice(["HS-grad", "Masters", ""], 4000, p=[0.49, 0.49, 0.02]),
        "occupation": draw.choice(["Craft-repair", "Sales"], 4000),
    }
    # Education and occupation count together alone, which their crossed column learns.
    score = (columns["education"] == "Masters") ^ (columns["occupation"] == "Sales")
    columns["income_bracket"] = np.where(draw.random(4000) < np.where(score, 0.9, 0.1), ">50K", "<=50K")
    rows = [dict(zip(columns, map(str, row))) for row in zip(*columns.values())]
    with (tmp_path / "adult.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "census.yaml").write_text(
        "name: census\n"
        "data: {csv: adult.csv, label: income_bracket}\n"
        "transform: {preprocessing_fn: raw}\n"
        "trainer: {model: 'census:model_fn', train_steps: 1000, global_batch_size: 40}\n"
    )
    workdir = Workdir(tmp_path / "runs")
    workdir.run("census.yaml", cwd=tmp_path)
    results = workdir.summary("census")
    # A tenth of the labels are drawn wrong: more than 0.9 cannot be reached.
    assert results["metrics"]["auc"] >= 0.8
    assert (results["blessed"], results["label_names"]) == (True, ["<=50K", ">50K"])
    run_python("-m", "tfx_estimator", "predict", "runs/census", "adult.csv", "--output", "scored.csv", cwd=tmp_path)
    with (tmp_path / "scored.csv").open() as file:
        is_high = [row["class"] == ">50K" for row in csv.DictReader(file)]
    assert np.mean(is_high == score) >= 0.9
