"""What stands in TensorFlow's way is left out of our processes, and nothing else is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.root import ROOT
from tests.stack import HERE
from tfx_estimator.pipeline.base.stack.stacks import KERAS, LEGACY
from tfx_estimator.pipeline.environment import hindering, without_hindering

# What is wrong here, and what our processes have instead.
WRONG, CHOSEN = ("1", None) if HERE is LEGACY else ("0", "1")

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_the_legacy_keras_is_left_to_where_there_is_one(monkeypatch, value):
    given = {KERAS: value, "HOME": "/"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert without_hindering(given) == {"HOME": "/"}
    assert KERAS not in hindering({KERAS: "0"})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert without_hindering(given) == given
    assert KERAS in hindering({KERAS: "0"})


@pytest.mark.parametrize(
    ("given", "is_left_out"),
    [
        ("error", True),
        ("default,error::DeprecationWarning", True),
        ("ignore", False),
        ("default,,", False),
        ("", False),
    ],
)
def test_warnings_that_are_errors_are_left_out(given, is_left_out):
    assert ("PYTHONWARNINGS" in hindering({"PYTHONWARNINGS": given})) is is_left_out


@pytest.mark.parametrize(
    ("value", "is_left_out"), [("abc", True), ("", True), ("2", True), ("yes", True), ("1", False), ("True", False)]
)
def test_what_tensorflow_aborts_at_is_left_out(value, is_left_out):
    assert ("TF_DETERMINISTIC_OPS" in hindering({"TF_DETERMINISTIC_OPS": value})) is is_left_out


@pytest.mark.long
@pytest.mark.parametrize(
    ("value", "aborts"), [("abc", True), ("", True), ("2", True), ("1", False), ("True", False), ("FALSE", False)]
)
def test_tensorflow_aborts_at_what_is_left_out(value, aborts):
    code = "import tensorflow as tf; list(tf.data.Dataset.range(3))"
    environment = {**os.environ, "TF_DETERMINISTIC_OPS": value}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (-6 if aborts else 0), done.stderr


@pytest.mark.parametrize(
    ("options", "wrong", "left_out"),
    [
        ((), {KERAS: WRONG, "PYTHONWARNINGS": "error"}, [KERAS, "PYTHONWARNINGS"]),
        ((), {"TF_DETERMINISTIC_OPS": "yes"}, ["TF_DETERMINISTIC_OPS"]),
        (("-W", "error"), {}, ["-W error"]),
        (("-W", "default"), {}, []),
    ],
)
def test_the_command_line_says_so_and_its_own_process_and_its_tasks_can_import_tensorflow(options, wrong, left_out):
    code = (
        "import os, sys, warnings\n"
        "from tfx_estimator import __main__ as command_line\n"
        "from tfx_estimator.pipeline.commands import show\n"
        "def work(args):\n"
        "    warnings.warn('old', DeprecationWarning)\n"
        "    print([os.environ.get(name) for name in ('TF_USE_LEGACY_KERAS', 'PYTHONWARNINGS')])\n"
        "    return 0\n"
        "show.run = work\n"
        "sys.argv = ['tfx-estimator', 'show', 'digits']\n"
        "sys.exit(command_line.main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **wrong}
    words = [sys.executable, *options, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{[CHOSEN, None]}\n"), done.stderr
    said = [line.split(" is left out: ")[0] for line in done.stderr.splitlines() if " is left out: " in line]
    assert said == [f"tfx-estimator: {each}" for each in left_out]


def test_a_task_under_somebody_elses_pipeline_has_them_left_out(monkeypatch):
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.process import _inherited

    monkeypatch.setenv(KERAS, WRONG)
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    told = _inherited(TaskSpec("chief", 0, 1))
    assert not {KERAS, "PYTHONWARNINGS"} & set(told)
