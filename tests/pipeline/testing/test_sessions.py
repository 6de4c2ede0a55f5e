"""A session of pytest with the kit leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.root import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

# What is started in the background of a shell ignores Ctrl-C.
SESSION = """
import signal
import sys

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
MODELS = """
import os
import time

import tensorflow as tf

v1 = tf.compat.v1


def model_fn(features, labels, mode):
    loss = tf.reduce_mean(tf.square(v1.layers.dense(features["x"], 1)[:, 0] - tf.cast(labels, tf.float32)))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def waiting(features, labels, mode):
    open("waiting", "w").close()
    time.sleep(600)
"""
TESTS = """
import models
import pytest
import tensorflow as tf

from tfx_estimator import testing

GIVEN = {"shape": (3,), "classes": 2, "examples": 4}


@pytest.mark.parametrize("index", range(3))
def test_step(index, tmp_path):
    assert testing.call_model_fn(models.model_fn, **GIVEN).step == 1


def test_wrong():
    assert testing.call_model_fn(models.model_fn, **GIVEN).step == 2


def test_long():
    testing.same_under(["mirrored:2"], models.waiting, **GIVEN)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --basetemp temporary\n")
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "test_mine.py").write_text(TESTS)
    return tmp_path


def start(project: Path, *arguments: str) -> subprocess.Popen:
    """Starts a session, with its temporary files in `temporaries`."""
    (project / "temporaries").mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(project / "temporaries")}
    command = [sys.executable, "-c", SESSION, "-c", "pytest.ini", *arguments]
    return subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)


def left(session: int) -> list[str]:
    """Returns the processes of a session, which has ended, and the ports that they listen at."""
    return [f"{each.pid} {each.cmdline()}" for each in psutil.process_iter() if os.getsid(each.pid) == session]


def test_two_workers_and_a_failing_test_leave_nothing(project: Path) -> None:
    process = start(project, "-n", "2", "-q", "-k", "not long")
    shown = process.communicate(timeout=150)[0]
    assert re.search("^1 failed, 3 passed", shown, re.MULTILINE), shown
    assert left(process.pid) == []
    assert list((project / "temporaries").iterdir()) == []
    assert {each.name for each in project.iterdir()} - {"__pycache__"} == {
        *("models.py", "pytest.ini", "temporaries", "temporary", "test_mine.py")
    }


def test_an_interrupt_ends_the_process_of_replicas_too(project: Path) -> None:
    process = start(project, "-q", "-k", "long")
    wait_until(lambda: (project / "waiting").exists() or process.poll() is not None, "the model_fn is not called", 100)
    os.killpg(process.pid, signal.SIGINT)
    shown = process.communicate(timeout=120)[0]
    assert "KeyboardInterrupt" in shown
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    wait_until(lambda: left(process.pid) == [], lambda: str(left(process.pid)), 10)
    assert list((project / "temporaries").iterdir()) == []
