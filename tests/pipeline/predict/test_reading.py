"""Reading inputs of a model in batches."""

from __future__ import annotations

import tracemalloc

import pytest

from tfx_estimator.pipeline.predict.inputs import Inputs, Unread
from tfx_estimator.pipeline.predict.reading import batches

pytestmark = pytest.mark.unit


def test_unreadable_files_are_not_kept_in_memory(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.png").write_bytes(bytes(1 << 20))
    # The first call imports modules.
    list(batches(Inputs([str(tmp_path / "0.png")]), 3, (4, 4), 2, 1))
    tracemalloc.start()
    found = list(batches(Inputs([str(tmp_path)]), 3, (4, 4), 2, 1))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [type(each) for each in found] == [Unread] * 20
    assert held < 1 << 20
