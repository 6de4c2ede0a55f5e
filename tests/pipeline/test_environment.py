"""What stands in TensorFlow's way is left out of our processes, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.environment import hindering, without_hindering

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_the_legacy_keras_is_left_to_where_there_is_one(monkeypatch, tmp_path, value):
    given = {"TF_USE_LEGACY_KERAS": value, "HOME": "/"}
    assert without_hindering(given) == {"HOME": "/"}
    assert "TF_USE_LEGACY_KERAS" not in hindering({"TF_USE_LEGACY_KERAS": "0"})
    (tmp_path / "tf_keras.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert without_hindering(given) == given


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
        ((), {"TF_USE_LEGACY_KERAS": "1", "PYTHONWARNINGS": "error"}, ["TF_USE_LEGACY_KERAS", "PYTHONWARNINGS"]),
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
        "    print([name for name in ('TF_USE_LEGACY_KERAS', 'PYTHONWARNINGS') if name in os.environ])\n"
        "    return 0\n"
        "show.run = work\n"
        "sys.argv = ['tfx-estimator', 'show', 'digits']\n"
        "sys.exit(command_line.main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **wrong}
    words = [sys.executable, *options, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    said = [line.split(" is left out: ")[0] for line in done.stderr.splitlines() if " is left out: " in line]
    assert said == [f"tfx-estimator: {each}" for each in left_out]


def test_a_task_under_somebody_elses_pipeline_has_them_left_out(monkeypatch):
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.process import _inherited

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    told = _inherited(TaskSpec("chief", 0, 1))
    assert not {"TF_USE_LEGACY_KERAS", "PYTHONWARNINGS"} & set(told)
