"""A finished run and two trainings on its examples, compared like by a user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser import open_browser
from tests.e2e.conftest import Finished, ForkedWorkdir
from tests.e2e.test_report import check_page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TEXT = """\
name: {name}
data: {{dataset: digits, splits: {{train: "train[:80%]", eval: "train[80%:]"}}, shards: 2}}
trainer:
  model: mnist_cnn
  path: {path}
  train_steps: 100
  global_batch_size: 64
  optimizer: {{name: sgd, learning_rate: 0.001}}
"""


def test_a_run_is_compared_with_two_paths(digits_run: Finished, forks, tmp_path: Path) -> None:
    output, workdir = tmp_path / "results", ForkedWorkdir(digits_run.workdir.path, forks)
    for name, path in (("digits", "estimator"), ("moved", "keras")):
        (tmp_path / f"{name}.yaml").write_text(TEXT.format(name=name, path=path))
    before = workdir.executions("digits")
    sources = [str(digits_run.logs), str(tmp_path / "digits.yaml"), str(tmp_path / "moved.yaml")]
    options = ["--output", str(output), "--json", "--require-equal", "0"]
    printed = workdir.call("compare", *sources, *options, code=8, seconds=500)
    assert "points apart" in printed.splitlines()[-3]
    report = json.loads((output / "compare.json").read_text())
    assert json.JSONDecoder().raw_decode(printed[printed.index("\n{\n") + 1 :])[0] == report

    names = list(report["candidates"])
    assert names == [f"digits {digits_run.logs.name}", "digits", "moved"]
    run, *trained = (report["candidates"][name] for name in names)
    # The Evaluator's metrics.
    assert report["examples"] == digits_run.summary["evaluated"]
    assert run["accuracy"]["value"] == pytest.approx(digits_run.summary["accuracy"])
    assert run["loss"]["value"] == pytest.approx(digits_run.summary["loss"], rel=1e-3)
    # The same network, trained for fewer and smaller steps.
    assert {each["parameters"] for each in (run, *trained)} == {run["parameters"]}
    for each in trained:
        assert each["accuracy"]["value"] < run["accuracy"]["value"]
        assert each["training"]["last_step"] == 100
        assert 1 < each["training"]["cpu_micros_per_example"] < 1e6
        assert each["training"]["peak_rss"] > 100 << 20
    # Both paths take the same steps.
    assert report["pairs"]["digits"]["p"] < 0.05
    assert abs(trained[0]["accuracy"]["value"] - trained[1]["accuracy"]["value"]) < 0.01

    after = workdir.executions("digits")
    assert after["Trainer"] - before["Trainer"] == {"COMPLETE": 2}
    for node in ("TfdsExampleGen", "StatisticsGen", "Transform"):
        assert after[node] - before[node] == {"CACHED": 2}
    assert after["Pusher"] == before["Pusher"]
    with open_browser(tmp_path / "browser") as browser:
        check_page(browser, output / "compare.html")


@pytest.mark.long
def test_a_learning_rate_makes_a_difference_and_other_seeds_make_none(digits_run: Finished, forks, tmp_path: Path):
    workdir = ForkedWorkdir(digits_run.workdir.path, forks)
    rate, common = "trainer.optimizer.learning_rate", ["--set", "trainer.train_steps=200", "--repeat", "3"]
    report = {}
    for name, vary in (("rates", f"{rate}=0.02,0.002"), ("seeds", "trainer.seed=42,142")):
        output = tmp_path / name
        workdir.call("compare", "digits", "--vary", vary, *common, "--output", str(output), seconds=550)
        report[name] = json.loads((output / "compare.json").read_text())
    (found,), (none,) = (list(each["pairs"].values()) for each in report.values())
    assert min(found["p"], found["seeds"]["corrected_loss_p"]) < 0.05
    assert min(none["p"], none["seeds"]["corrected_loss_p"]) > 0.05
    assert report["seeds"]["conclusions"][0].startswith("No difference found between seed=142 and seed=42")
    # The trainings of both comparisons under the declared seeds are the same.
    same = [
        each["candidates"][base]["replicates"] for each, base in zip(report.values(), ("learning_rate=0.02", "seed=42"))
    ]
    assert [each["accuracy"] for each in same[0]] == [each["accuracy"] for each in same[1]]
    assert [each["seed"] for each in same[0]] == [42, 43, 44]
