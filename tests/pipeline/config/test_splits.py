"""What the text of split expressions tells of the examples that they share."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config.data import find_overlap

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("train[:80%]", "train[70%:]", True),
        ("train[:80%]", "train[80%:]", False),
        ("train[:33.5%]", "train[33.25%:]", True),
        ("train[-20%:]", "train[:90%]", True),
        ("train[:80%]", "train[-20%:]", False),
        ("train[:80%]", "test[70%:]", False),
        ("train[:5%]+train[95%:]", "test+train[90%:]", True),
        ("train[:10_000]", "train[9000:]", True),
        ("train[0:10]", "train[10:20]", False),
        ("train[0:50%]", "train[40%:]", True),
        ("train", "train[-1000:]", True),
        ("train[3shard]", "train[0%:]", True),
        ("all", "test[:10]", True),
        # These show when it is known how many there are.
        ("train[:80%]", "train[5000:]", False),
        ("train[:-1000]", "train[2000:]", False),
    ],
)
def test_overlaps_that_the_text_tells(one, other, shared):
    assert bool(find_overlap(one, other)) == shared


@pytest.mark.parametrize(
    ("splits", "instead"),
    [
        ("{train: 'train[:80%]', eval: 'train[70%:]'}", "{train: 'train[:90%]', eval: 'train[90%:]'}"),
        (
            "{train: 'train[:80%]', eval: 'train[80%:]', test: 'train[90%:]'}",
            "{train: 'train[:80%]', eval: 'train[80%:90%]', test: 'train[90%:]'}",
        ),
    ],
)
def test_overlaps_are_refused_before_anything_runs(problems, good, splits, instead):
    (problem,) = problems(good.replace('{train: "train[:90%]", eval: test}', splits))
    assert "both hold a part of" in problem
    assert f"set splits: {instead}" in problem
