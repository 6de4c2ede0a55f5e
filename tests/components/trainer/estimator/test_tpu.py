"""A TPUEstimator is trained under a strategy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.mark.timeout(180)
def test_replicas_train_a_tpu_estimator_as_one_device_does(codes):
    alone, shared = codes.answers(str(Path(__file__).with_name("tpu.py")))
    # Mode, batch size, use_tpu, and an own value of `params`.
    assert alone[0] == [["train", 16, False, 1], ["eval", 8, False, 1]]
    # A replica's own batch; none for an export.
    assert shared[0] == [["train", 8, False, 1]] * 2 + [["eval", 4, False, 1]] * 2 + [["infer", None, False, 1]]
    for one, many in zip(alone[1], shared[1]):
        np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
    assert shared[2] == pytest.approx(alone[2], rel=1e-5)
    assert shared[3:] == [True, 2]
