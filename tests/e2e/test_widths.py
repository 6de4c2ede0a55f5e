"""Pages with many columns, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import open_browser
from tests.e2e.test_report import check_page
from tests.pipeline.experiments.bench.test_results import measurement
from tests.pipeline.experiments.compare.test_results import compared
from tfx_estimator.pipeline.experiments.bench import page as bench
from tfx_estimator.pipeline.experiments.bench.results import Comparison
from tfx_estimator.pipeline.experiments.compare import page as compare
from tfx_estimator.pipeline.report.page import Missing

pytestmark = pytest.mark.e2e


def of_bench() -> str:
    measured = [measurement("one_core", 1, 120.0, constant_input=True, peak_rss=2**30)]
    for name in ("one_core", "mirrored:2", "keras_custom_loop parameter_server:2"):
        measured += [measurement(name, number, 100.0 + 9 * number, peak_rss=2**30, others=0.1) for number in (1, 2, 3)]
    facts = {"name": "digits", "model": "mnist_cnn", "steps": 300, "warmup": 50, "rounds": 3, "when": "today"}
    found = Comparison("one_core", measured, {}, {**facts, "machine": {"cpu": "any", "cores": 2}})
    return bench.to_html(found, bench.to_png(found))


def of_compare() -> str:
    found = compared(*([index] for index in range(6)))
    names = [each.name for each in found.results]
    return compare.to_html(found, dict.fromkeys(names, Missing("none")), [{"trainer.seed": each} for each in names], [])


@pytest.mark.parametrize("make", [of_bench, of_compare])
def test_no_column_is_cut(make, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(make())
    with open_browser(tmp_path / "browser") as browser:
        check_page(browser, page)
