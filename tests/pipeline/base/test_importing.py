"""Imports without the search for garbage."""

from __future__ import annotations

import gc

import pytest

from tfx_estimator.pipeline.base.importing import uncollected

pytestmark = pytest.mark.unit


def fail(kept: list) -> None:
    with uncollected():
        assert not gc.isenabled()
        kept.append([object()])
        raise ImportError


@pytest.mark.parametrize("on", [True, False])
def test_no_garbage_is_looked_for_meanwhile_and_as_before_afterwards(on):
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ImportError):
            fail(kept := [])
        assert gc.isenabled() == on
        # It is not looked at again.
        assert not any(each is kept[0] for each in gc.get_objects())
    finally:
        (gc.enable if was_on else gc.disable)()
