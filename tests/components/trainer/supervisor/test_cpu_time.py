"""The CPU time of a task, measured on processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tfx_estimator.components.trainer.supervisor.process import cpu_seconds

pytestmark = pytest.mark.unit

# A child that computes, then one that has ended; the name of the process may hold anything.
COMPUTES = """
import subprocess, sys
with open("/proc/self/comm", "w") as file:
    file.write("a) b (c d")
spin = "import time\\nwhile time.process_time() < 0.6: pass\\n"
child = subprocess.Popen([sys.executable, "-c", spin + "time.sleep(60)"], start_new_session=True)
subprocess.run([sys.executable, "-c", spin])
sys.stdin.read()
child.kill()
"""


def test_what_a_process_and_all_below_it_have_used_is_counted():
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", COMPUTES], stdin=subprocess.PIPE) as process:
        while (found := cpu_seconds(process.pid)) < 1.0:
            assert process.poll() is None
            time.sleep(0.05)
        assert found < 5
        assert cpu_seconds(os.getpid()) - before >= 1.0
    assert cpu_seconds(process.pid) == 0
