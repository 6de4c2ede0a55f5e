"""`trainer.sync_every`: its short form, and what it is refused with."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

WORKERS = "  distribution: {train: {strategy: multi_worker_mirrored}}\n"


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("4", {"steps": 4, "outer_momentum": 0.0}),
        ("{steps: 8, outer_momentum: 0.5}", {"steps": 8, "outer_momentum": 0.5}),
    ],
)
def test_a_number_is_that_of_the_steps(write, good, declared, found):
    write(f"{good}  path: keras\n  sync_every: {declared}\n{WORKERS}")
    assert load("mine.yaml").declaration.trainer.sync_every.dict() == found


@pytest.mark.parametrize(
    ("lines", "where", "reason"),
    [
        (f"  sync_every: 4\n{WORKERS}", "trainer.sync_every", "an Estimator's session saves by itself"),
        ("  path: keras\n  sync_every: 4\n", "trainer.sync_every", "the strategy one_device has none"),
        (
            "  path: keras\n  sync_every: 4\n  distribution: {train: {strategy: parameter_server}}\n",
            "trainer.sync_every",
            "the strategy parameter_server has none",
        ),
        (
            "  path: keras\n  sync_every: 4\n"
            "  distribution: {train: {strategy: multi_worker_mirrored, gradient_compression: fp16}}\n",
            "trainer.distribution.train.gradient_compression: fp16",
            "no gradient is sent",
        ),
        (f"  path: keras\n  sync_every: 0\n{WORKERS}", "trainer.sync_every", "out of range"),
    ],
)
def test_what_cannot_average_is_refused(problems, good, lines, where, reason):
    (problem,) = problems(good + lines)
    assert where in problem
    assert reason in problem
