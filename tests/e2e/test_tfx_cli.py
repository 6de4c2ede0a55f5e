"""TFX's own command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRIPT = ROOT / "pipeline" / "runners" / "local.py"


def test_tfx_creates_and_runs_the_pipeline(workdir, tmp_path):
    environment = {
        **os.environ,
        "TFX_ESTIMATOR_DECLARATION": "digits",
        "TFX_ESTIMATOR_WORKDIR": str(workdir.path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def tfx(*args: str) -> str:
        command = [str(Path(sys.executable).with_name("tfx")), *args, "--engine", "local"]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert 'Pipeline "digits" created successfully' in tfx("pipeline", "create", "--pipeline_path", str(SCRIPT))
    assert "digits" in tfx("pipeline", "list")
    tfx("run", "create", "--pipeline_name", "digits")
    counts = workdir.executions("digits")
    assert counts["Trainer"] == counts["Pusher"] == counts["Evaluator"] == {"COMPLETE": 1}
    pushed = list((workdir.path / "digits" / "serving").iterdir())
    assert len(pushed) == 1
    assert (pushed[0] / "saved_model.pb").exists()
