"""The end of a task, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = [pytest.mark.unit, pytest.mark.timeout(120)]

# A path that fails next to a thread that does not end; from then on no byte can be written.
TASK = """
import os, resource, sys, threading, time
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.task import paths, start
from tfx_estimator.pipeline.base.errors import UserCodeError

class Path:
    def run(self, context):
        threading.Thread(target=time.sleep, args=(100,)).start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            print("no place for this", flush=True)
        except OSError:
            raise UserCodeError("own")

paths.path_of = lambda job: Path()
TaskSpec("chief", 0, 1, supervisor_pid=os.getppid()).save(sys.argv[2])
sys.exit(start.main(sys.argv[1:]))
"""


def test_a_task_that_fails_on_a_full_disk_ends_with_its_errors_exit_code(tmp_path):
    Job("{}", "{}", {}, str(tmp_path), path="estimator").save(str(tmp_path / "job.json"))
    command = [sys.executable, "-c", TASK, str(tmp_path / "job.json"), str(tmp_path / "task.json")]
    begun = time.monotonic()
    with open(tmp_path / "log", "wb") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    assert done.returncode == UserCodeError.exit_code
    assert time.monotonic() - begun < 90
    assert not (tmp_path / "chief-0.attempt-1.error.json").exists()
