"""Jobs that come at once claim one folder of a bucket: one of them goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from tests.store.conftest import serving
from tests.store.front import BUCKET

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

JOBS, FOLDERS = 3, 6
# Claims one folder after another, at the moments that it is told; each job's process is as of a machine of its own.
JOB = """
import json, sys, time, uuid
from tfx_estimator.components.trainer import training_claim
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.errors import TrainingError

training_claim.process = lambda: {"host": "elsewhere", "space": uuid.uuid4().hex, "pid": 1}
print("ready", flush=True)
begin = float(sys.stdin.readline())
said = []
for number in range(int(sys.argv[2])):
    time.sleep(max(0.0, begin + 12 * number - time.time()))
    try:
        with claimed(f"{sys.argv[1]}/{number}-600", 0.5, 8.0) as check:
            time.sleep(max(0.0, begin + 12 * number + 9 - time.time()))
            check()
            said.append("on")
    except TrainingError as error:
        said.append(error.what)
print(json.dumps(said), flush=True)
"""


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_of_those_that_come_at_once_one_goes_on(tmp_path, binary, share):
    with serving(tmp_path, binary, share) as store:
        command = (sys.executable, "-c", JOB, f"gs://{BUCKET}/training", str(FOLDERS))
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        jobs = [store.popen(*command, **options) for _ in range(JOBS)]
        try:
            for job in jobs:
                assert job.stdout.readline() == "ready\n", job.stderr.read()
            begin = f"{time.time() + 1}\n"
            for job in jobs:
                job.stdin.write(begin)
                job.stdin.flush()
            told = [job.communicate(timeout=300) for job in jobs]
        finally:
            for job in jobs:
                job.kill()
                job.wait()
        assert [job.returncode for job in jobs] == [0] * JOBS, told
        rounds = list(zip(*(json.loads(out) for out, _ in told)))
        for each in rounds:
            assert sorted("another job trains in" in said for said in each) == [False, True, True], rounds
        assert not [name for name in store.names("training/") if ".claim" in name]
