"""The project's log when only TFX has set up logging."""

from __future__ import annotations

import pytest

from tests.root import run_python

# TFX's components log through absl before ours do.
SCRIPT = """
from absl import logging
{setup}
logging.info("Running pipeline")
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.supervisor.report import Report
report = Report(None, 10)
for step in (0, 10):
    report.record(TaskSpec("chief", 0, 1), {{"event": Event.STEP, "step": step, "time": float(step)}})
"""


@pytest.mark.parametrize(
    ("setup", "shown"),
    [
        ("logging.set_verbosity(logging.INFO)", True),
        ("logging.use_absl_handler(); logging.set_verbosity(logging.INFO)", True),
        ("logging.set_verbosity(logging.WARNING)", False),
    ],
)
def test_training_is_logged_as_tfxs_own_messages(setup, shown):
    done = run_python("-c", SCRIPT.format(setup=setup))
    lines = [line for line in done.stderr.splitlines() if "before flag parsing" not in line]
    # Each once.
    expected = ["Running pipeline", "step 0/10", "step 10/10, 1.0 steps/s"] * shown
    assert len(lines) == len(expected)
    assert all(line.endswith(end) for line, end in zip(lines, expected))
