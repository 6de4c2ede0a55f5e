"""How long stages wait for each other, told from operations that were written down by hand."""

from __future__ import annotations

import pytest

from tests.components.trainer.profiling.test_trace import space

pytestmark = pytest.mark.unit


def test_the_bubble_is_what_stages_wait_within_steps():
    from tfx_estimator.components.trainer.profiling.bubble import find_bubbles
    from tfx_estimator.pipeline.config.parallel import PipelineParallel

    first = [
        ("while/body/_1/pipeline_stage0/conv/Conv2D:Conv2D", 0, 2),
        ("while/body/_1/pipeline_stage0_1/conv/Conv2D:Conv2D", 2, 4),
        ("while/body/_1/pipeline_stage0_2/gradients/pipeline_stage0/conv/Conv2D_grad/Conv2D:Conv2D", 6, 8),
    ]
    second = [
        ("while/body/_1/pipeline_stage1/dense/MatMul:MatMul", 2, 5),
        ("while/body/_1/pipeline_stage1/dense/BiasAdd:BiasAdd", 3, 6),
        ("SGD/update:ResourceApplyGradientDescent", 9, 10),
    ]
    # The same again, whose last operation is late.
    *later, (last, begin, _) = [(name, begin + 100, end + 100) for name, begin, end in first]
    later.append((last, begin, 110))
    beside = [(name, begin + 100, end + 100) for name, begin, end in second]
    found = find_bubbles(space(("one", first), ("other", second), ("one", later), ("other", beside)))
    assert [each.seconds for each in found] == [pytest.approx(0.008), pytest.approx(0.01)]
    (found, _) = found
    assert found.busy == (pytest.approx(6 / 8), pytest.approx(4 / 8))
    assert found.share == pytest.approx(1 - (6 + 4) / 16)
    assert found.together == pytest.approx(2 / 8)
    section = PipelineParallel(stages=2, microbatches=4)
    assert found.tell(section) == (
        "2 stages, 4 microbatches: bubble 0.38, of 0.20 ideal; the stages were at work 75%, 50% of the time, and two "
        "at once 25%"
    )
    assert find_bubbles(space(("one", [("dense/MatMul:MatMul", 0, 1)]))) == []
