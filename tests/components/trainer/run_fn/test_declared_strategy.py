"""A run_fn finds the declared strategy, however it asks; one of its own devices is its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.root import ROOT

pytestmark = pytest.mark.timeout(120)


def test_code_that_asks_or_makes_or_knows_of_none_finds_the_declared_one():
    command = [sys.executable, "-m", "tests.components.trainer.run_fn.asks_for_strategy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["knows of none"] == [2, "MirroredStrategy"]
    assert found["difference"] < 1e-6
    assert found["declared"] == [
        "get_strategy",
        "MirroredStrategy",
        "its own reduction",
        "MultiWorkerMirroredStrategy",
        "experimental",
    ]
    assert found["replicas"] == 2
    assert found["own"] == [1, "MirroredStrategy"]
    assert not found["after"]
    (notice,) = found["notices"]
    assert notice.startswith("the run_fn makes a strategy of its own, MirroredStrategy")
