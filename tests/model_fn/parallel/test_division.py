"""Which device a layer is put on; that it trains there is shown in tests/equivalence."""

from __future__ import annotations

import pytest

from tfx_estimator.model_fn.parallel.division import Division
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit

OPTION = "trainer.model_parallel"


def test_the_longest_pattern_that_fits_decides():
    found = Division(OPTION, ("cpu:0", "cpu:1", "cpu:2"), {"*": 1, "dense*": 2, "dense1": 0, "d*": 1})
    assert [found.device_of(name)[-1] for name in ("conv", "dense1", "dense7", "drop")] == ["1", "0", "2", "1"]
    assert Division(OPTION, ("cpu:3", "cpu:1"), {"a": 1}).device_of("b") == "/device:CPU:3"


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(DeclarationError, match=r"trainer.model_parallel.devices asks for gpu:63"):
        Division(OPTION, ("cpu:0", "gpu:63"), {"a": 1})
